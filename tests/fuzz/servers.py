"""Targets for the servers: each takes bytes of any kind and fails only where the operator would."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from operator_runner.config.watches.expressions import evaluate
from operator_runner.conversion.converter import ConversionError, Converter
from operator_runner.conversion.server import InvalidReview, Review
from operator_runner.core.model import GVK, Conversion, Json, ObjectRef
from operator_runner.core.timetable import Cron, TickRecord, Timetable, parse_zone
from operator_runner.proxy import bodies, protobuf
from operator_runner.proxy.bodies import (
    DecodingError,
    decode_json,
    decode_yaml,
    encode_json,
    request_headers,
    response_headers,
    upgrade_of,
)
from operator_runner.proxy.ownership import MetadataPatch, Owner, patch_for_create
from operator_runner.proxy.request_info import (
    RequestInfo,
    Subject,
    owners_with_blocked_deletion,
    permissions_for_request,
    permissions_in_body,
)
from operator_runner.proxy.server import grant_for_basic_auth
from operator_runner.proxy.status_errors import StatusError
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.usermetrics import UserMetricError

Target = Callable[[bytes], None]

_INFO = RequestInfo("", "v1", "team", "configmaps")
_OWNER = Owner(ObjectRef(GVK("cache.example.com", "v1", "Cache"), "team", "sample"), "uid-1")
_NOW = datetime(2026, 5, 5, 13, 0, 30, tzinfo=UTC)
_GROUP = "shop.example.com"
_CONVERSION = Conversion(
    "v1",
    {("spec", "replicas"): "spec.size", ("spec", "ports"): "spec.port && [spec.port]"},
    {("spec", "size"): "spec.replicas", ("spec", "port"): "spec.ports[0]"},
)
_CONVERTERS = {(_GROUP, "Web"): Converter(GVK(_GROUP, "v2", "Web"), [_CONVERSION], evaluate)}


def json_body(data: bytes) -> None:
    """Give JSON its owner, refuse it, or pass it on because it has no object's shape."""
    _owned("application/json", data)


def yaml_body(data: bytes) -> None:
    """Add an owner to YAML or reject it; the parsed text can be written and parsed again."""
    _owned("application/apply-patch+yaml", data)
    with suppress(DecodingError):
        content = decode_yaml(data)
        assert decode_json(encode_json(content)) == content or "\\u" in repr(content)


def protobuf_body(data: bytes) -> None:
    """Give protobuf its owner, which can be read back, or refuse it."""
    body = b"k8s\x00" + data
    with suppress(DecodingError):
        added = bodies.add_owner(bodies.PROTOBUF, body, partial(patch_for_create, _OWNER, _INFO))
        view = protobuf.view(added)
        owners = [each.get("uid") for each in view["metadata"]["ownerReferences"]]
        is_owner = not patch_for_create(_OWNER, _INFO, protobuf.view(body))
        assert is_owner or owners[-1] == _OWNER.uid
    bodies.is_dry_run(bodies.PROTOBUF, body)


def request(data: bytes) -> None:
    """Take path, headers and the owner that a program names apart, or refuse them."""
    text = data.decode(errors="surrogateescape")
    path, _, rest = text.partition("\n")
    list(permissions_for_request("GET", path, Subject("Cache", "team", "sample")))
    headers = dict(line.partition(":")[::2] for line in rest.split("\n"))
    request_headers(headers, readable=True)
    response_headers(headers)
    upgrade_of(headers)
    with suppress(StatusError):
        grant_for_basic_auth(rest, [])
    with suppress(StatusError):
        grant_for_basic_auth(f"Basic {rest}", [])


def rights(data: bytes) -> None:
    """Find the permissions that writing a Role needs, for any shape."""
    content = _json(data)
    if isinstance(content, dict):
        for resource in ("roles", "clusterrolebindings"):
            info = RequestInfo("rbac.authorization.k8s.io", "v1", "team", resource)
            list(permissions_in_body(info, content, Subject()))
        list(owners_with_blocked_deletion(content))


def review(data: bytes) -> None:
    """Refuse a review, or answer it with one object for each, or one Failure with a text."""
    answer(_json(data))


def objects(data: bytes) -> None:
    """Convert objects in a review of the right shape, or answer a Failure with a text."""
    content = _json(data)
    found = content if isinstance(content, list) else [content]
    named = [
        {"apiVersion": f"{_GROUP}/v1", "kind": "Web", **each} if isinstance(each, dict) else each
        for each in found
    ]
    version = f"{_GROUP}/v2"
    answer(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {"uid": "u", "desiredAPIVersion": version, "objects": named},
        }
    )


def answer(content: Any) -> None:
    """Answer a review as the webhook does."""
    with suppress(InvalidReview):
        parsed = Review(content, _CONVERTERS)
        try:
            json.dumps(parsed.success(list(parsed.convert()))).encode()
        except ConversionError as error:
            json.dumps(parsed.failure(error)).encode()


_METRICS = Metrics("0")


def metric(data: bytes) -> None:
    """Make or refuse a metric of a role; all metrics can still be read."""
    with suppress(UserMetricError):
        _METRICS.user.apply(data)
        _METRICS.render()


def schedule(data: bytes) -> None:
    """Take a schedule, a zone and the times of a status, or refuse them with a reason."""
    lines = data.decode(errors="replace").split("\n")
    text, zone, last, created = [*lines, "", "", "", ""][:4]
    body = {
        "metadata": {"creationTimestamp": created},
        "status": {"lastScheduleTime": last, "nextScheduleTime": created},
    }
    record = TickRecord.of(body)
    with suppress(ValueError):
        cron = Cron.parse(text, parse_zone(zone) if zone else ZoneInfo("UTC"))
        ticks = Timetable(cron, timedelta(minutes=1)).ticks(record, _NOW)
        assert ticks.next is None or ticks.next > _NOW
        assert ticks.due is None or record.last is None or ticks.due > record.last


TARGETS: Mapping[str, Target] = {
    target.__name__: target
    for target in (
        json_body,
        yaml_body,
        protobuf_body,
        request,
        rights,
        review,
        objects,
        metric,
        schedule,
    )
}

_PROTOBUF = "0a0f0a0276311209436f6e6669674d6170120b0a090a01786a0422026964"
_REVIEW = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "ConversionReview",
    "request": {
        "uid": "u",
        "desiredAPIVersion": f"{_GROUP}/v2",
        "objects": [{"apiVersion": f"{_GROUP}/v1", "kind": "Web", "metadata": {}, "spec": {}}],
    },
}
_KEPT = {"conversion.operator-runner.dev/v2": '{"seen": "0", "set": {"spec.ports": [1, 2]}}'}
_WEB = {"metadata": {"annotations": _KEPT}, "spec": {"size": 1, "port": 2}}

SEEDS: Mapping[str, tuple[bytes, ...]] = {
    "schedule": (
        b"30 2 * * mon-fri\nEurope/Berlin\n2026-05-05T12:00:00Z\n2026-05-05T12:00:00Z\n",
        b"*/5 4,6 L 1-6 5L\nAustralia/Lord_Howe\n9999-12-31T23:59:59Z\n0001-01-01T00:00:00Z\n",
    ),
    "json_body": (b'{"metadata": {"ownerReferences": [{"uid": "x"}], "annotations": null}}',),
    "yaml_body": (b"metadata: {name: x}\ndata:\n  - &a 0x1F\n  - *a\n  - !!str 1_0.5e3\n",),
    "protobuf_body": (bytes.fromhex(_PROTOBUF),),
    "request": (b"/apis/apps/v1/namespaces/n/deployments/d/scale\nAccept: application/json\n",),
    "rights": (
        b'{"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}',
        b'{"metadata": {"ownerReferences": [{"blockOwnerDeletion": true, "apiVersion": "v1"}]}}',
        bytes(range(256)),
    ),
    "review": (json.dumps(_REVIEW).encode(), bytes(range(256))),
    "objects": (json.dumps([_WEB]).encode(), bytes(range(256))),
    "metric": (b'{"name": "a", "description": "d", "histogram": {"observe": 1.5}}',),
}
"""Examples from which the long form begins."""


def _owned(kind: str, data: bytes) -> None:
    version = MetadataPatch(references=(_OWNER.reference,))
    with suppress(DecodingError):
        added = bodies.add_owner(kind, data, lambda _: version)
        assert added == data or json.loads(added)["metadata"]["ownerReferences"][-1]["uid"]
    with suppress(DecodingError):
        bodies.add_owner(kind, data, partial(patch_for_create, _OWNER, _INFO))
    bodies.is_dry_run(kind, data)


def _json(data: bytes) -> Any:
    """Return the bytes as JSON; otherwise a value of the shape that they describe."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _shape(data)


_NAMES = (
    *("apiVersion", "kind", "metadata", "name", "namespace", "annotations", "spec", "status"),
    *("ownerReferences", "uid", "blockOwnerDeletion", "controller", "roleRef", "rules", "verbs"),
    *("apiGroups", "resources", "resourceNames", "nonResourceURLs", "request", "objects"),
    *("desiredAPIVersion", "size", "port", "replicas", "ports", "seen", "set", "unset", "*", ""),
    *("conversion.operator-runner.dev/v2", "conversion.operator-runner.dev/v1", "ConversionReview"),
    *("apiextensions.k8s.io/v1", f"{_GROUP}/v1", f"{_GROUP}/v2", "Web", "v1", "a/b/c", "\ud800"),
    *('{"seen": "0", "set": {"spec.ports": [1]}, "unset": ["spec"]}', '{"set": 7}', "[["),
)
_SCALARS = (None, True, False, 0, -1, 1.5, 2**70)
_ROOTS = 6


def _shape(data: bytes) -> Json:
    """Build an object of JSON from bytes: each begins or ends a collection, or gives a scalar.

    So any change of the bytes changes the shape, and none is bad syntax.
    """
    root: Json = {}
    containers: list[Any] = [root]
    for place, byte in enumerate(data):
        what, which = byte % _ROOTS, data[(place + 1) % len(data)] ^ byte
        values: tuple[Any, ...] = ({}, [], _pick(_NAMES, which), _pick(_SCALARS, which))
        if what >= len(values):
            containers = containers[:-1] or [root]
            continue
        value, into = values[what], containers[-1]
        if isinstance(into, dict):
            into[_pick(_NAMES, which >> 1)] = value
        else:
            into.append(value)
        if isinstance(value, dict | list):
            containers.append(value)
    return root


def _pick(values: Sequence[Any], which: int) -> Any:
    return values[which % len(values)]
