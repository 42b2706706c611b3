"""The extra vars of a run: what a role knows of its resource. Pure.

A Memcached of the group cache.example.com with the spec {sizeLimit: 3} gives:
    size_limit: 3
    ansible_operator_meta: {namespace: default, name: sample}
    _cache_example_com_memcached: {apiVersion: ..., metadata: ..., spec: {sizeLimit: 3}}
    _cache_example_com_memcached_spec: {sizeLimit: 3}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from operator_runner.model import GVK, Json, Watch
from operator_runner.reconcile.snake_case import snake_keys


def extra_vars(body: Json, watch: Watch, *, cleanup: bool) -> Json:
    """Return the variables for one run over the resource `body`.

    Later ones win: spec, ansible_operator_meta, the resource, its spec, the vars of the watch
    and, in a clean-up, those of its finalizer. What the user of the resource wrote is marked as
    unsafe for templates if the watch asks for it; what the operator's author wrote never is.
    """
    spec = body.get("spec")
    if not isinstance(spec, dict):
        spec = {}
    parameters = snake_keys(spec) if watch.snake_case_parameters else spec
    metadata = body["metadata"]
    name = _object_name(watch.gvk)
    protect = _mark_unsafe if watch.mark_unsafe else _as_is
    variables: Json = {
        **protect(parameters),
        "ansible_operator_meta": {
            "namespace": metadata.get("namespace") or "",
            "name": metadata["name"],
        },
        name: protect(body),
        f"{name}_spec": protect(spec),
        **watch.vars,
    }
    if cleanup and watch.finalizer is not None:
        variables.update(watch.finalizer.vars)
    return variables


def templated_fields(body: Json) -> Iterator[str]:
    """Yield the paths of texts in the spec that Ansible evaluates as templates if not marked."""
    return _templated(body.get("spec"), "spec")


def _templated(value: Any, path: str) -> Iterator[str]:
    match value:
        case str() if "{{" in value or "{%" in value:
            yield path
        case list():
            for index, item in enumerate(value):
                yield from _templated(item, f"{path}[{index}]")
        case dict():
            for key, item in value.items():
                yield from _templated(item, f"{path}.{key}")


def _object_name(gvk: GVK) -> str:
    # The core group has an empty name, hence two underscores: __secret.
    return f"_{gvk.group}_{gvk.kind.lower()}".replace(".", "_").replace("-", "_")


def _as_is(value: Any) -> Any:
    return value


def _mark_unsafe(value: Any) -> Any:
    """Wrap every string value as Ansible's JSON decoder wants it for text without templates."""
    match value:
        case str():
            return {"__ansible_unsafe": value}
        case list():
            return [_mark_unsafe(item) for item in value]
        case dict():
            return {key: _mark_unsafe(item) for key, item in value.items()}
        case _:
            return value
