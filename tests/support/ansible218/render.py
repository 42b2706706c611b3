"""Render templates as an ansible-core gives them to tasks: a program for 2.18 and for ours.

Reads one case a line, as JSON: `variables` is YAML, `templates` are texts by name, each of which
may use those before it, as facts. Writes one line for each: `{"facts": {...}}` or
`{"error": "..."}`. It imports nothing but ansible-core; with the argument `ours` also
`operator_runner.ansible.templating.compatibility`, which it installs.
"""

# ruff: noqa: PLC0415 (each of them has imports that the other one has not)

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

OMIT = "__omit_place_holder__of_this_test"
"""What `omit` is in ansible-core 2.18, where tasks remove it from their arguments."""


def main() -> None:
    """Answer until the input ends."""
    load, render = _ours() if sys.argv[1:] == ["ours"] else _real()
    print("ready", flush=True)  # noqa: T201 (its protocol)
    for line in sys.stdin:
        print(json.dumps(_answer(load, render, json.loads(line))), flush=True)  # noqa: T201


def _answer(
    load: Callable[[str], Any],
    render: Callable[[str, dict[str, Any]], Any],
    case: dict[str, Any],
) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    try:
        variables = load(case["variables"]) or {}
        for name, template in case["templates"].items():
            facts[name] = variables[name] = render(template, variables)
        return {"facts": _as_json(facts)}
    except Exception as error:  # noqa: BLE001 (the test compares which cases fail)
        return {"error": f"{type(error).__name__}: {error}"}


def _as_json(value: Any) -> Any:
    """Return a value as a task's result shows it; sets, which 2.18 cannot show, are lists."""
    if isinstance(value, dict):
        return {str(key): _as_json(each) for key, each in value.items() if each != OMIT}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value if each != OMIT]
    if isinstance(value, set | frozenset):
        return [_as_json(each) for each in sorted(value, key=repr)]
    if isinstance(value, bytes):
        return value.decode()
    if value is None or isinstance(value, bool):
        return value
    kind = next((kind for kind in (str, int, float) if isinstance(value, kind)), None)
    if kind is None:
        raise TypeError(f"no result of a task can have a {type(value).__name__}")
    return kind(value)


def _loader() -> Any:
    from ansible.parsing.dataloader import DataLoader

    return DataLoader()


def _real() -> Any:
    from ansible.plugins.loader import init_plugin_loader
    from ansible.template import Templar

    init_plugin_loader()

    def render(template: str, variables: dict[str, Any]) -> Any:
        return Templar(_loader(), variables={"omit": OMIT, **variables}).template(template)

    return _loader().load, render


def _ours() -> Any:
    from ansible.errors import AnsibleValueOmittedError
    from ansible.parsing.utils.yaml import from_yaml
    from ansible.plugins.loader import init_plugin_loader
    from ansible.template import Templar, trust_as_template

    from operator_runner.ansible.templating import compatibility

    init_plugin_loader()
    compatibility.install()

    def load(text: str) -> Any:
        return from_yaml(trust_as_template(text))

    def render(template: str, variables: dict[str, Any]) -> Any:
        templar = Templar(_loader(), variables=variables)
        try:
            return templar.template(trust_as_template(template))
        except AnsibleValueOmittedError:
            return OMIT

    return load, render


if __name__ == "__main__":
    main()
