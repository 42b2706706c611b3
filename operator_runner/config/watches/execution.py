"""The `execution` key of an entry: runs as Kubernetes Jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from operator_runner.config.watches.document import YamlValue
from operator_runner.config.watches.map_reader import MapReader
from operator_runner.config.watches.pod_values import check_image, check_resources
from operator_runner.core.model import Drift, JobTemplate
from operator_runner.core.object_names import LABEL_PATTERN

NAMED_OBJECTS = {"volumes": ("name",), "volumeMounts": ("name", "mountPath")}
"""Required fields of the objects in these lists."""
TEMPLATE_FIELDS = ("metadata", "spec")
TEMPLATE_MAPS = {"metadata": ("labels",), "spec": ("nodeSelector",)}
TEMPLATE_LISTS = ("containers", "volumes", "tolerations")
"""Maps, and lists of maps in the spec, to which the keys of `execution.job` are added."""
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
        if name not in TEMPLATE_FIELDS:
            job.problem("template", f"{name} is not a field of a Pod template; write it in `spec`")
    for name in TEMPLATE_FIELDS:
        if not isinstance(template.get(name) or {}, Mapping):
            job.problem("template", f"{name} must be a map of keys and values")
            return {}
    problems = list(_wrong_types(template))
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


def _wrong_types(template: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the fields that the runner adds to; the API server checks others."""
    for part, names in TEMPLATE_MAPS.items():
        for name in names:
            value = (template.get(part) or {}).get(name)
            if not isinstance({} if value is None else value, Mapping):
                yield f"{name} must be a map of keys and values"
    spec = template.get("spec") or {}
    lists = [(name, spec.get(name)) for name in TEMPLATE_LISTS]
    containers = spec.get("containers")
    lists += [
        ("volumeMounts", each.get("volumeMounts"))
        for each in (containers if isinstance(containers, list) else ())
        if isinstance(each, Mapping)
    ]
    for name, value in lists:
        if not isinstance([] if value is None else value, list):
            yield f"{name} must be a list"
        elif not all(isinstance(each, Mapping) for each in value or ()):
            yield f"each item of {name} must be a map of keys and values"
