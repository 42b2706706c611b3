"""Metrics that roles make: what `operator_sdk.util.osdk_metric` sends, applied to a registry.

Format, texts and precedence are ansible-operator's (its internal/ansible/metrics). A request is
one JSON object: name, description, one of counter, gauge, histogram and summary, and labels, which
ansible-operator does not have.
"""

from __future__ import annotations

import json
import re
import reprlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, Summary
from prometheus_client.registry import Collector

_OPERATIONS: Mapping[str, Mapping[str, type]] = {
    "counter": {"increment": bool, "add": float},
    "gauge": {
        "set": float,
        "increment": bool,
        "decrement": bool,
        "add": float,
        "subtract": float,
        "set_to_current_time": bool,
    },
    "histogram": {"observe": float},
    "summary": {"observe": float},
}
_FAMILY = {
    "counter": "counter",
    "gauge": "gauge",
    # Go's client has one interface for both, so either request fits either metric.
    "histogram": "histogram or summary",
    "summary": "histogram or summary",
}
_MAX_NUMBER = 1e308
_MAX_METRICS = 1000
"""Metrics of roles; beyond that, names probably contain a resource or a run."""
_MAX_SERIES = 20_000
"""Series of one metric with labels."""
_RESOURCE = ("namespace", "name")
"""Labels that name the resource of a series, which ends with it."""
_MAX_NAME_LENGTH, _MAX_DESCRIPTION_LENGTH = 200, 1000
"""Characters; longer descriptions are cut."""
_MAX_LABELS = 10
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__|le\Z|quantile\Z)[a-zA-Z_][a-zA-Z0-9_]{0,99}")
"""A label; `le` and `quantile` are those of histograms and summaries."""
# Those of Go's client, on which alerts of existing projects count.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class UserMetricError(ValueError):
    """An invalid request; the text names the field."""


@dataclass(frozen=True, slots=True)
class UserMetric:
    """One request: a metric and the operations on it."""

    name: str
    description: str
    kind: str
    """counter, gauge, histogram or summary."""
    operations: Mapping[str, Any]
    """Given operations by name: numbers and true or false."""
    labels: Mapping[str, str]


class ExactCounter(Collector):
    """A counter that is exported under its own name; prometheus_client's own add `_total`."""

    def __init__(self, name: str, description: str, registry: CollectorRegistry) -> None:
        self._name, self._description, self._value = name, description, 0.0
        registry.register(self)

    def inc(self, amount: float = 1) -> None:
        """Add `amount`."""
        self._value += amount

    def collect(self) -> Iterable[Metric]:
        """Return the family; its type is `unknown`: OpenMetrics counters require `_total`."""
        metric = Metric(self._name, self._description, "unknown")
        metric.add_sample(self._name, {}, self._value)
        return [metric]

    def describe(self) -> Iterable[Metric]:
        """Return the family, so that the registry reserves its name."""
        return self.collect()


_Series: TypeAlias = Counter | ExactCounter | Gauge | Histogram | Summary


@dataclass(frozen=True, slots=True)
class _Made:
    """A metric, its label names, and the values of its series."""

    family: str
    metric: _Series
    names: tuple[str, ...]
    values: set[tuple[str, ...]] = field(default_factory=set)

    def series(self, request: UserMetric) -> _Series:
        """Return the series with the labels of a request. Raises UserMetricError."""
        if self.names != tuple(sorted(request.labels)):
            names = ", ".join(self.names) or "no labels"
            raise UserMetricError(f"labels: {request.name} has {names}; use the same in every task")
        if not self.names or isinstance(self.metric, ExactCounter):
            return self.metric
        if request.name.endswith("_info"):
            self.remove({name: request.labels.get(name, "") for name in _RESOURCE})
        values = tuple(request.labels[name] for name in self.names)
        if values not in self.values and len(self.values) >= _MAX_SERIES:
            raise UserMetricError(
                f"labels: {request.name} exceeds the limit of {_MAX_SERIES} series; use labels"
                " with few values"
            )
        self.values.add(values)
        return self.metric.labels(*values)

    def remove(self, labels: Mapping[str, str]) -> None:
        """Remove the series with these labels."""
        for values in list(self.values):
            if labels.items() <= dict(zip(self.names, values, strict=True)).items():
                self.values.discard(values)
                self.metric.remove(*values)  # type: ignore[union-attr]


class UserMetrics:
    """The metrics that roles have made so far, on the registry of the operator's own.

    `clock` gives seconds since 1970. Threads may share it.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.time) -> None:
        self._registry = registry
        self._clock = clock
        self._made: dict[str, _Made] = {}
        self._lock = threading.Lock()

    def apply(self, body: bytes) -> None:
        """Create or change the metric of a request. Raises UserMetricError."""
        try:
            request = parse(body)
        except RecursionError as error:
            raise UserMetricError("the body is nested too deep") from error
        with self._lock:
            made = self._ensure(request)
            if made.family != _FAMILY[request.kind]:
                raise UserMetricError(
                    f"cannot change metric type of {request.name}, which is a {made.family}"
                )
            _operate(made.series(request), request, self._clock)

    def forget(self, namespace: str, name: str) -> None:
        """Remove the series of a deleted resource, which its labels name."""
        with self._lock:
            for made in self._made.values():
                made.remove({"namespace": namespace, "name": name})

    def typed(self, text: bytes) -> bytes:
        """Call counters what they are in Prometheus' text format, which needs no `_total`."""
        for name, made in list(self._made.items()):
            if isinstance(made.metric, ExactCounter):
                text = text.replace(
                    f"\n# TYPE {name} untyped\n".encode(), f"\n# TYPE {name} counter\n".encode()
                )
        return text

    def _ensure(self, request: UserMetric) -> _Made:
        if request.name not in self._made:
            if len(self._made) >= _MAX_METRICS:
                raise UserMetricError(
                    f"name: {request.name} exceeds the limit of {_MAX_METRICS} metrics of roles;"
                    " use the same names in every run"
                )
            problem = UserMetricError(
                f"name: {request.name} is used by another metric of the operator,"
                " or by one of its series such as _count or _sum; choose another name"
            )
            if request.name in self._names():
                raise problem
            try:
                metric = _make(request, self._registry)
            except ValueError as error:
                raise problem from error
            self._made[request.name] = _Made(
                _FAMILY[request.kind], metric, tuple(sorted(request.labels))
            )
        return self._made[request.name]

    def _names(self) -> set[str]:
        """Return the exported names; the registry does not list those of the process's metrics."""
        families = list(self._registry.collect())
        samples = {sample.name for family in families for sample in family.samples}
        return samples | {family.name for family in families}


def parse(body: bytes) -> UserMetric:
    """Read a request; raises UserMetricError. Unknown fields are ignored."""
    try:
        request = json.loads(body)
    except ValueError as error:
        raise UserMetricError(f"invalid JSON body: {error}") from error
    if not isinstance(request, dict):
        raise UserMetricError('the body must be a JSON object, such as {"name": "x", "gauge": {}}')
    given = {
        kind: _operations(kind, request[kind])
        for kind in _OPERATIONS
        if request.get(kind) is not None
    }
    name, description = (_text(request, field) for field in ("name", "description"))
    if len(given) > 1:
        raise UserMetricError("only one metric can be processed at a time")
    if not given:
        raise UserMetricError("a request should contain at least one metric")
    if len(name) > _MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise UserMetricError(
            f"name: {_shown(name)} is not a metric name; use letters, digits and underscores,"
            f" do not begin with a digit, {_MAX_NAME_LENGTH} characters at most"
        )
    ((kind, operations),) = given.items()
    if operations.get("add", 0) < 0 and kind == "counter" and not operations.get("increment"):
        raise UserMetricError("counter metrics cannot decrease in value")
    # One text that cannot be encoded would make all metrics unavailable.
    described = description[:_MAX_DESCRIPTION_LENGTH].encode(errors="replace").decode()
    labels = _labels(request.get("labels") or {})
    if labels and kind == "counter" and not name.endswith("_total"):
        raise UserMetricError(f"labels: a counter with labels needs a name such as {name}_total")
    return UserMetric(name, described, kind, operations, labels)


def _labels(given: Any) -> Mapping[str, str]:
    if not isinstance(given, dict) or len(given) > _MAX_LABELS:
        raise UserMetricError(
            f"labels must be an object with at most {_MAX_LABELS} names, not {_shown(given)}"
        )
    for name, value in given.items():
        if not _LABEL.fullmatch(name):
            raise UserMetricError(f"labels: {_shown(name)} is not a label name")
        if not isinstance(value, str) or len(value) > _MAX_NAME_LENGTH * 2:
            raise UserMetricError(f"labels.{name} must be a short text, not {_shown(value)}")
    return {name: value.encode(errors="replace").decode() for name, value in given.items()}


def _shown(value: Any) -> str:
    """Return a value for a message, however long or deep it is."""
    return reprlib.repr(value)


def _text(request: Mapping[str, Any], field: str) -> str:
    value = request.get(field)
    if value is not None and not isinstance(value, str):
        raise UserMetricError(f"{field} must be text, not {_shown(value)}")
    return value or ""


def _operations(kind: str, given: Any) -> Mapping[str, Any]:
    """Return the requested operations; an operation with the value null is not requested."""
    if not isinstance(given, dict):
        raise UserMetricError(f"{kind} must be an object, not {_shown(given)}")
    return {
        name: _value(f"{kind}.{name}", given[name], type_)
        for name, type_ in _OPERATIONS[kind].items()
        if given.get(name) is not None
    }


def _value(path: str, value: Any, type_: type) -> bool | float:
    if type_ is bool:
        if not isinstance(value, bool):
            raise UserMetricError(f"{path} must be true or false, not {_shown(value)}")
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # JSON has neither NaN nor infinity, but Python reads both, and numbers of any size.
    if not number or not abs(value) <= _MAX_NUMBER:
        raise UserMetricError(f"{path} must be a finite number, not {_shown(value)}")
    return float(value)


def _make(request: UserMetric, registry: CollectorRegistry) -> _Series:
    """Make an empty metric; raises ValueError for a name that is taken."""
    name, description, labels = request.name, request.description, sorted(request.labels)
    match request.kind:
        case "counter" if name.endswith("_total"):
            return Counter(name, description, labels, registry=registry)
        case "counter":
            return ExactCounter(name, description, registry)
        case "gauge":
            return Gauge(name, description, labels, registry=registry)
        case "histogram":
            return Histogram(name, description, labels, registry=registry, buckets=_BUCKETS)
        case _:
            return Summary(name, description, labels, registry=registry)


def _operate(series: _Series, request: UserMetric, clock: Callable[[], float]) -> None:
    """Do the first requested operation, if any, in ansible-operator's order."""
    operations = request.operations
    match series:
        case Counter() | ExactCounter():
            series.inc(1 if operations.get("increment") else operations.get("add", 0))
        case Histogram() | Summary():
            if "observe" in operations:
                series.observe(operations["observe"])
        case Gauge():
            _operate_gauge(series, operations, clock)


def _operate_gauge(gauge: Gauge, operations: Mapping[str, Any], clock: Callable[[], float]) -> None:
    if operations.get("increment"):
        gauge.inc()
    elif operations.get("decrement"):
        gauge.dec()
    elif operations.get("add"):
        gauge.inc(operations["add"])
    elif operations.get("subtract"):
        gauge.dec(operations["subtract"])
    elif "set" in operations:
        gauge.set(operations["set"])
    elif operations.get("set_to_current_time"):
        gauge.set(clock())
