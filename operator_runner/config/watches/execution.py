"""The `execution` key of an entry: runs as Kubernetes Jobs.

Values of Pods that Kubernetes would refuse at the start of each run are reported: images and
quantities. Sources: https://github.com/distribution/reference (grammar of images) and
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from operator_runner.config.watches.document import Diagnostics, YamlValue
from operator_runner.config.watches.map_reader import MapReader
from operator_runner.core.model import Drift, JobTemplate
from operator_runner.core.object_names import LABEL_PATTERN

NAMED_OBJECTS = {"volumes": ("name",), "volumeMounts": ("name", "mountPath")}
"""Required fields of the objects in these lists."""
POD_TEMPLATE: Mapping[str, Any] = {
    "metadata": {"labels": {}},
    "spec": {
        "nodeSelector": {},
        "containers": [{"volumeMounts": [{}]}],
        "volumes": [{}],
        "tolerations": [{}],
    },
}
"""Maps, and lists of maps, of a Pod template to which the keys of `execution.job` are added."""
_CONTAINER = "run"
_OWN_FIELDS = ("image", "command", "args")
"""Fields of the container that have other keys, or are the runner's."""


def read_execution(fields: MapReader) -> JobTemplate | None:
    """Return how runs become Jobs, None if they do not; problems are reported."""
    execution = fields.fields("execution")
    job = None if execution is None else execution.fields("job")
    if job is None:
        return None
    if fields.choice("drift") == Drift.WARN.value:
        fields.problem(
            "drift",
            "the preview of `warn` would run inside the operator, not as the Job of"
            " `execution.job`; write `enforce` or `ignore`",
        )
    image = job.text("image")
    if not image:
        job.problem("image", "image must not be empty; add `image:`")
    namespace = job.text("namespace")
    if namespace and not re.fullmatch(LABEL_PATTERN, namespace):
        job.problem(
            "namespace", f"invalid namespace {namespace!r}; write lower-case letters, digits and -"
        )
    for name, value in _of_containers(job):
        check = check_image if name == "image" else check_resources
        check(value, job.report)
    return JobTemplate(
        image=image,
        namespace=namespace,
        service_account_name=job.text("serviceAccountName"),
        resources=job.mapping("resources"),
        node_selector=job.labels("nodeSelector"),
        tolerations=job.objects("tolerations"),
        volumes=_named(job, "volumes"),
        volume_mounts=_named(job, "volumeMounts"),
        ttl=_ttl(job),
        pod=_template(job),
    )


def _of_containers(job: MapReader) -> Iterator[tuple[str, YamlValue]]:
    """Yield the images and resources of the Pod: those of the run, and of other containers."""
    containers: list[YamlValue] = []
    spec = _child(job.item("template"), "spec")
    for name in ("initContainers", "containers"):
        listed = _child(spec, name)
        if listed is not None and isinstance(listed.value, tuple):
            containers += listed.value
    for name in ("image", "resources"):
        found = [job.item(name), *(_child(container, name) for container in containers)]
        for value in found:
            if value is not None:
                yield name, value


def _child(item: YamlValue | None, name: str) -> YamlValue | None:
    fields = None if item is None else item.value
    return fields.get(name) if isinstance(fields, Mapping) else None


def _ttl(job: MapReader) -> timedelta:
    ttl = job.duration("ttl")
    if ttl is not None and ttl < timedelta(0):
        job.problem("ttl", "a ttl must not be negative; write 0s to delete finished Jobs at once")
    return JobTemplate("").ttl if ttl is None else ttl


def _named(job: MapReader, key: str) -> tuple[dict[str, Any], ...]:
    found = job.objects(key)
    for each in found:
        for name in NAMED_OBJECTS[key]:
            if not each.get(name):
                job.problem(key, f"each item of {key} must have {name}; add `{name}:`")
    return found


def _template(job: MapReader) -> dict[str, Any]:
    template = job.mapping("template")
    for name in template:
        if name not in POD_TEMPLATE:
            job.problem("template", f"{name} is not a field of a Pod template; write it in `spec`")
    problems = list(_wrong_types(template, POD_TEMPLATE))
    for problem in problems:
        job.problem("template", problem)
    if problems:
        return {}
    for container in (template.get("spec") or {}).get("containers") or ():
        for name in _OWN_FIELDS:
            if container.get("name") == _CONTAINER and name in container:
                job.problem(
                    "template", f"{name} of the container {_CONTAINER} cannot be set; remove it"
                )
    return template


def _wrong_types(fields: Mapping[str, Any], shape: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the fields that the runner adds to; the API server checks others."""
    for name, inner in shape.items():
        value, is_list = fields.get(name), isinstance(inner, list)
        if value is None:
            continue
        if is_list and not isinstance(value, list):
            yield f"{name} must be a list"
            continue
        for each in value if is_list else [value]:
            if isinstance(each, Mapping):
                yield from _wrong_types(each, inner[0] if is_list else inner)
            else:
                of_what = f"each item of {name}" if is_list else name
                yield f"{of_what} must be a map of keys and values"


_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REGISTRY = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_IMAGE = re.compile(rf"(?:{_REGISTRY}/)?{_COMPONENT}(?:/{_COMPONENT})*(?:{_TAG})?(?:{_DIGEST})?")
_QUANTITY = re.compile(r"([+-]?)([0-9]*\.?[0-9]*)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?")
"""Sign, number and suffix. The API server reads a missing number as 0."""
_FACTORS = {
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{letter: Decimal(1000) ** -power for power, letter in enumerate("mun", 1)},
}
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_FIELDS = ("requests", "limits", "claims")
_SHOWN = 60


def check_image(image: YamlValue, report: Diagnostics) -> None:
    """Report an image that no node can pull."""
    if isinstance(image.value, str) and image.value and not _IMAGE.fullmatch(image.value):
        report.problem(
            image.location,
            f"invalid image {image.value[:_SHOWN]!r}; write [REGISTRY/]NAME[:TAG] with a name in"
            " lower case, such as quay.io/example/ee:1.0",
        )


def check_resources(resources: YamlValue, report: Diagnostics) -> None:
    """Report quantities of a container, and names of resources, that the API server refuses."""
    fields = resources.value if isinstance(resources.value, Mapping) else {}
    for name in fields.keys() - _FIELDS:
        report.warning(fields[name].location, "unknown field, ignored; write requests or limits")
    requests, limits = (dict(_amounts(fields.get(name), report)) for name in _FIELDS[:2])
    for name, (amount, value) in requests.items():
        if name in limits and amount > limits[name][0]:
            problem = f"the request of {name} is more than its limit; raise the limit"
            report.problem(value.location, problem)


def _amounts(
    listed: YamlValue | None, report: Diagnostics
) -> Iterator[tuple[str, tuple[Decimal, YamlValue]]]:
    """Yield the names and quantities of resources; invalid ones are reported."""
    if listed is None or listed.value is None:
        return
    if not isinstance(listed.value, Mapping):
        report.problem(listed.location, "expected a map; write names and quantities of resources")
        return
    for name, value in listed.value.items():
        if problem := _name_problem(name):
            report.problem(value.location, problem)
            continue
        try:
            yield name, (quantity(value.value), value)
        except ValueError as error:
            report.problem(value.location, f"{error}; write a quantity such as 500m, 2 or 512Mi")


def _name_problem(name: str) -> str:
    if name in _RESOURCES or "/" in name or name.startswith("hugepages-"):
        return ""
    hint = f"write {', '.join(_RESOURCES)}, or a name with a domain"
    return f"unknown resource {name[:_SHOWN]!r}; {hint}"


def quantity(value: object) -> Decimal:
    """Return the number that a quantity of a resource stands for. Raises ValueError."""
    text = str(value)
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or not text.strip() or isinstance(value, bool):
        raise ValueError(f"invalid quantity {text[:_SHOWN]!r}")
    sign, digits, suffix = match.groups(default="")
    number = Decimal(f"0{digits}")
    if sign == "-" and number:
        raise ValueError(f"negative quantity {text[:_SHOWN]!r}")
    if suffix in _FACTORS:
        return number * _FACTORS[suffix]
    return number.scaleb(int(suffix[1:])) if suffix else number
