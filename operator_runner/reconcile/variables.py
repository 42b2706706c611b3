"""Compute the extra vars of a run from its resource. Pure.

A Memcached of the group cache.example.com with the spec {sizeLimit: 3} becomes:
    size_limit: 3
    ansible_operator_meta: {namespace: default, name: sample}
    _cache_example_com_memcached: {apiVersion: ..., metadata: ..., spec: {sizeLimit: 3}}
    _cache_example_com_memcached_spec: {sizeLimit: 3}

Names are converted exactly as by ansible-operator. Roles depend on them: `HTTPSPort` becomes
`http_s_port`, a capital at the start leaves an underscore, `.` and `/` are kept.
Where ansible-operator depends on Go's random order of maps, the order is fixed here: special words
are searched as HTTP, then URL, then IP, and `snake_keys` documents which of two equal names wins.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from operator_runner.core.model import GVK, TYPE_TAG_PREFIX, Json, PlainMap, Watch, desired_state

META = "ansible_operator_meta"
"""Name and namespace of the resource."""
SCHEDULE_TIME = "schedule_time"
"""Time of the tick that a run handles, if its watch has a schedule."""

_SPECIAL_WORDS = ("HTTP", "URL", "IP")
_NUMBERS = re.compile(r"([a-zA-Z])([0-9]+)([a-zA-Z]([0-9]+))")
_SEPARATOR = re.compile("[ _-]")
_WORD = re.compile("(?s:.)(?:(?![A-Z][a-z]|[a-z][A-Z])(?s:.))*(?:[a-z](?=[A-Z]))?")
"""Ends before a capital that a small letter follows, or after a small one that a capital follows.

One expression: keys of a resource may have 1.3 MB in total, and all are converted in each run.
"""


def extra_vars(
    body: Json,
    watch: Watch,
    *,
    cleanup: bool,
    excluded: Collection[str] = (),
    schedule_time: str | None = None,
) -> Json:
    """Return the variables for one run over the resource `body`.

    Later ones win: the top-level fields that the watch names, the spec, ansible_operator_meta, the
    resource, its spec, the tick of its schedule (a field of this name is not passed), the vars of
    the watch and, in a clean-up, those of its finalizer. The fields
    in `excluded` do not become variables; the variables of the resource and of its spec still
    contain them. Text of the resource is marked as unsafe if `watch.mark_unsafe`; `vars` of the
    watch never are.
    """
    spec = _spec(body)
    fields = _top_level(body, watch) | spec
    parameters = {key: value for key, value in fields.items() if key not in excluded}
    if watch.snake_case_parameters:
        parameters = snake_keys(parameters)
    metadata = body["metadata"]
    name = object_name(watch.gvk)
    variables: Json = {
        # Not _encoded(parameters): the mapping of variables is not a map of the resource.
        **{key: _encoded(value, watch.mark_unsafe) for key, value in parameters.items()},
        META: {
            # Few kinds allow braces in a name, RBAC for example.
            key: _encoded(text, watch.mark_unsafe and "{" in text)
            for key, text in (
                ("namespace", metadata.get("namespace") or ""),
                ("name", metadata["name"]),
            )
        },
        name: _encoded(body, watch.mark_unsafe),
        f"{name}_spec": _encoded(spec, watch.mark_unsafe),
    }
    if watch.schedule is not None:
        variables.pop(SCHEDULE_TIME, None)
    if schedule_time is not None:
        variables[SCHEDULE_TIME] = schedule_time
    variables.update(watch.vars)
    if cleanup and watch.finalizer is not None:
        variables.update(watch.finalizer.vars)
    return variables


def fields_of_variables(body: Json, watch: Watch) -> Iterator[tuple[str, str, str]]:
    """Yield the parent, `spec` or empty, and the name of each field, and the name of its variable.

    The fields are those of the spec and the top-level fields that the watch names.
    """
    for parent, fields in (("", _top_level(body, watch)), ("spec", _spec(body))):
        for field in fields:
            yield parent, field, to_snake(field) if watch.snake_case_parameters else field


def templated_fields(body: Json) -> Iterator[str]:
    """Yield the paths of strings that Ansible evaluates unless marked as unsafe.

    They are those of the desired state: the spec, or the data of a ConfigMap.
    """
    for name, value in desired_state(body).items():
        yield from _templated(value, name)


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


def _top_level(body: Json, watch: Watch) -> Json:
    return {name: body[name] for name in watch.top_level_fields if name in body}


def _spec(body: Json) -> Json:
    spec = body.get("spec")
    return spec if isinstance(spec, dict) else {}


def _encoded(value: Any, mark_unsafe: bool) -> Any:
    """Return a value of the resource, encoded for Ansible's JSON decoder.

    A map with a key that the decoder interprets becomes a `PlainMap`. With `mark_unsafe` each
    string is wrapped, so that Ansible never evaluates it as a template.
    """
    match value:
        case str():
            return {f"{TYPE_TAG_PREFIX}unsafe": value} if mark_unsafe else value
        case list():
            return [_encoded(item, mark_unsafe) for item in value]
        case dict():
            items = {key: _encoded(item, mark_unsafe) for key, item in value.items()}
            has_tag = any(key.startswith(TYPE_TAG_PREFIX) for key in value)
            return PlainMap(items) if has_tag else items
        case _:
            return value


def to_snake(name: str) -> str:
    """Return the variable's name for a field's name; an empty name stays empty."""
    if name.isascii() and name.isalpha() and name.islower():
        return name
    text = _NUMBERS.sub(r"\1 \2 \3", name).strip(" ")
    if not text:
        return ""
    prefix = "_" if "A" <= text[0] <= "Z" else ""
    for word in _SPECIAL_WORDS:
        text = _isolate(text, word)
    words = _split(text)
    if words[0].upper() in _SPECIAL_WORDS:
        prefix = ""
    return prefix + "_".join(words)


def snake_keys(value: Any) -> Any:
    """Return a copy of a JSON value with all names converted, including maps in lists.

    Where two names become one, the value under the name that needed no conversion wins, else
    that of the alphabetically last: `foo_bar` over `fooBar` over `foo-bar`.
    """
    if isinstance(value, dict):
        return _snake_map(value)
    if isinstance(value, list):
        return [snake_keys(item) for item in value]
    return value


def _snake_map(value: Json) -> Json:
    names = {key: to_snake(key) for key in value}
    ordered = sorted(value, key=lambda key: (names[key] == key, key))
    return {names[key]: snake_keys(value[key]) for key in ordered}


def _isolate(text: str, word: str) -> str:
    """Put underscores around the first `word` in `text`; a plural s becomes part of it."""
    start = text.find(word)
    if start < 0:
        return text
    head, tail = text[:start], text[start + len(word) :]
    if not tail:
        # At the end the underscore is added even if nothing precedes it: URL becomes _URL.
        return f"{head}_{word}"
    if tail == "s":
        return f"{head}_{word}S"
    if tail[0] == "s":
        word, tail = f"{word}S", tail[1:]
    return f"{head}_{word}_{tail}" if head else f"{word}_{tail}"


def _split(text: str) -> list[str]:
    """Cut at separators and at changes of case; an acronym such as JSON is one word."""
    parts = _SEPARATOR.split(text)
    return [word.lower() for part in parts for word in _WORD.findall(part) or [""]]
