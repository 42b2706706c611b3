"""The extra vars of a run: what a role knows of its resource. Pure.

A Memcached of the group cache.example.com with the spec {sizeLimit: 3} gives:
    size_limit: 3
    ansible_operator_meta: {namespace: default, name: sample}
    _cache_example_com_memcached: {apiVersion: ..., metadata: ..., spec: {sizeLimit: 3}}
    _cache_example_com_memcached_spec: {sizeLimit: 3}
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from operator_runner.core.model import GVK, TYPE_TAG_PREFIX, Json, PlainMap, Watch
from operator_runner.reconcile.snake_case import snake_keys, to_snake

META = "ansible_operator_meta"
"""Name and namespace of the resource."""


def extra_vars(body: Json, watch: Watch, *, cleanup: bool, without: Collection[str] = ()) -> Json:
    """Return the variables for one run over the resource `body`.

    Later ones win: spec, ansible_operator_meta, the resource, its spec, the vars of the watch
    and, in a clean-up, those of its finalizer. Fields of the spec that are in `without` become no
    variables; the resource and its spec have them. What the user of the resource wrote is marked
    as unsafe for templates if the watch asks for it; what the operator's author wrote never is.
    """
    spec = _spec(body)
    parameters = {key: value for key, value in spec.items() if key not in without}
    if watch.snake_case_parameters:
        parameters = snake_keys(parameters)
    metadata = body["metadata"]
    name = object_name(watch.gvk)
    variables: Json = {
        # Not _data(parameters): the variables themselves are no map of the resource.
        **{key: _data(value, watch.mark_unsafe) for key, value in parameters.items()},
        META: {
            # A name is a template in few kinds: those of RBAC may have any name.
            key: _data(text, watch.mark_unsafe and "{" in text)
            for key, text in (
                ("namespace", metadata.get("namespace") or ""),
                ("name", metadata["name"]),
            )
        },
        name: _data(body, watch.mark_unsafe),
        f"{name}_spec": _data(spec, watch.mark_unsafe),
        **watch.vars,
    }
    if cleanup and watch.finalizer is not None:
        variables.update(watch.finalizer.vars)
    return variables


def fields_of_spec(body: Json, watch: Watch) -> Iterator[tuple[str, str]]:
    """Yield the names of the fields of a spec, each with that of its variable."""
    for field in _spec(body):
        yield field, to_snake(field) if watch.snake_case_parameters else field


def templated_fields(body: Json) -> Iterator[str]:
    """Yield the paths of texts in the spec that Ansible evaluates as templates if not marked."""
    return _templated(body.get("spec"), "spec")


def _templated(value: Any, path: str) -> Iterator[str]:
    match value:
        case str() if any(mark in value for mark in ("{{", "{%", "{#")):
            yield path
        case list():
            for index, item in enumerate(value):
                yield from _templated(item, f"{path}[{index}]")
        case dict():
            for key, item in value.items():
                yield from _templated(item, f"{path}.{key}")


def object_name(gvk: GVK) -> str:
    """Return the name of the variable that holds the whole resource."""
    # The core group has an empty name, hence two underscores: __secret.
    return f"_{gvk.group}_{gvk.kind.lower()}".replace(".", "_").replace("-", "_")


def _spec(body: Json) -> Json:
    spec = body.get("spec")
    return spec if isinstance(spec, dict) else {}


def _data(value: Any, mark_unsafe: bool) -> Any:
    """Return a value of the resource as Ansible's JSON decoder wants it.

    Maps with a key that would make them something else become a `PlainMap`; texts are wrapped so
    that they are not templates if `mark_unsafe` asks for it.
    """
    match value:
        case str():
            return {f"{TYPE_TAG_PREFIX}unsafe": value} if mark_unsafe else value
        case list():
            return [_data(item, mark_unsafe) for item in value]
        case dict():
            items = {key: _data(item, mark_unsafe) for key, item in value.items()}
            has_tag = any(key.startswith(TYPE_TAG_PREFIX) for key in value)
            return PlainMap(items) if has_tag else items
        case _:
            return value
