"""The JSON schema for editors agrees with the loader."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from operator_runner.config.watches import load, schema
from operator_runner.config.watches.document import Diagnostics, Expanded, expand, parse
from operator_runner.config.watches.keys import ENTRY_KEYS, Key
from operator_runner.core.errors import ConfigError

VALIDATOR = Draft7Validator(schema())
FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.yaml"))
# Errors that a schema cannot detect: files, YAML itself, other entries, expressions.
BEYOND = re.compile(
    r"was not found|is not a directory|is a directory|invalid YAML|must be text|not a JSON number|"
    r"an alias refers|<< merges|duplicate GVK|invalid JMESPath|is kept as text|"
    r"of the core group|duplicate conversion|the version of the watch itself|"
    r"already has a conversion|invalid field path|cannot be converted; remove it|"
    r"only labels and annotations|overlap; keep|is neither|needs manageStatus|"
    r"needs the status to be written|dependents are not watched|written by the operator itself|"
    r"duplicate condition|is not one of the conditions of|is not one of resource, dependents|"
    r"of the container run cannot be set|"
    r"unknown name define|named expressions use each other|with the names put in|"
    r"invalid image|invalid quantity|unknown resource|is more than its limit"
)
BASE = {"version": "v1", "kind": "Web", "role": "web"}
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 3, 3.0, 1.5, -1, "", "web", "site.yml", "true", "3"),
    *("10s", "1h30m", ".5h", "-1s", "0", "0s", "+0.0s", "1d", "10", "s", "1 s", "a/b", "-a", "a b"),
    *({}, [], {"a": "b"}, {"a": None}, {"a": []}, {"a b": "c"}, {"a": "b/c"}, {"a/b": 1}),
    *([1], ["x"], [None], [{}], [[]], [{"kind": "Pod", "version": "v1"}], [{"kind": []}]),
)
FINALIZERS = (
    {"name": "a/b"},
    {"name": "a/b", "role": "web"},
    {"name": "a/b", "role": ""},
    {"name": "a/b", "vars": {"x": 1}},
    {"name": "a/b", "vars": {}},
    {"name": "a/b", "vars": None},
    {"name": "a/b", "playbook": "site.yml", "vars": []},
    {"role": "web"},
    {"name": "", "role": "web"},
    {"name": None, "role": "web"},
    {"name": 5, "role": "web"},
    {"name": "A/b", "role": "web"},
    {"name": f"{'a' * 254}/b", "role": "web"},
    {"name": f"{'a' * 253}/b", "role": "web"},
    {"name": "a" * 64, "role": "web"},
    {"name": "a/b/c", "role": "web"},
)
LISTS: tuple[Any, ...] = (None, [], ["x"], ["x", 1, True], ["a b"], "x", [[]])
PRUNED_KINDS: tuple[Any, ...] = (
    *(None, [], ["Namespace"], ["Namespace", "Pod"], [None], [1], "Namespace", {}),
)
REQUIREMENTS: tuple[Any, ...] = (
    *({"operator": "Exists"}, {"key": "a"}, {"key": "", "operator": "Exists"}, None),
    *(
        {"key": "a/b", "operator": operator, "values": values}
        for operator in ("In", "NotIn", "Exists", "DoesNotExist", "Is", "", None)
        for values in LISTS
    ),
)


def warnings(path: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the loader's problems that a schema can detect as well."""
    try:
        load(path, environ)
    except ConfigError as error:
        return [line for line in error.problems if not BEYOND.search(line)]
    return []


def errors(value: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(value)]


def documents() -> Iterator[list[Any]]:
    """Yield an entry for each key with each value, and those whose keys depend on each other."""
    for key in ENTRY_KEYS:
        yield from ([{**BASE, key.name: value}] for value in VALUES)
    for name in BASE:
        yield [{key: value for key, value in BASE.items() if key != name}]
    yield from ([{**BASE, "finalizer": finalizer}] for finalizer in FINALIZERS)
    yield from ([{**BASE, "when": "a", "deselection": each}] for each in FINALIZERS)
    for name, value in (("vars", {}), ("selector", {}), ("selector", None), ("WHEN", "a")):
        yield [{**BASE, name: value, "deselection": {"name": "a/b", "role": "web"}}]
    for ways in itertools.product((None, "", "spec.a", 3), repeat=2):
        reference = {"version": "v1", "kind": "Pod", "name": ways[0], "selector": ways[1]}
        yield [{**BASE, "references": [reference]}]
        trigger = {"version": "v1", "kind": "Pod", "name": ways[0], "matching": ways[1]}
        yield [{**BASE, "triggers": [trigger]}]
    yield from ([{**BASE, "topLevelFields": [name]}] for name in ("data", "spec", "kind", "Kind"))
    for kinds in PRUNED_KINDS:
        for propagation in (None, "Background", "Foreground", "Orphan", 1):
            yield [{**BASE, "prune": {"kinds": kinds, "propagation": propagation, "x": 1}}]
    for requirement in REQUIREMENTS:
        selector = {"matchExpressions": [requirement]}
        yield [{**BASE, "selector": selector}]
        yield [{**BASE, "triggers": [{"version": "v1", "kind": "Pod", "selector": selector}]}]
    others: tuple[Any, ...] = (None, [], "x", {}, {**BASE, "version": "v2", "x": 1})
    yield from ([BASE, other] for other in others)


def test_the_schema_is_one(project: Path) -> None:
    """It is a schema of the draft that it names, and of plain JSON."""
    assert project.is_dir()
    Draft7Validator.check_schema(schema())
    assert json.loads(json.dumps(schema())) == schema()


def test_the_schema_agrees_with_the_loader(project: Path) -> None:
    """The editor marks exactly the values that the loader rejects."""
    path = project / "watches.yaml"
    tried = {True: 0, False: 0}
    for document in documents():
        path.write_text(json.dumps(document))
        complaints = warnings(path, {})
        marked = errors(document)
        assert bool(marked) is bool(complaints), (document, complaints, marked)
        tried[bool(marked)] += 1

    assert min(tried.values()) > 100


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_the_schema_rejects_the_invalid_fixtures(path: Path, project: Path) -> None:
    """Each file in fixtures is marked, except for problems that a schema cannot detect."""
    assert project.is_dir()
    root = parse(expand(path.read_text(), {}), Diagnostics("x"))

    marked = errors(None if root is None else root.plain())

    assert bool(marked) is bool(warnings(path, {})), marked


def test_any_value_may_come_from_the_environment(project: Path) -> None:
    """The editor checks the file before variables are expanded."""
    text = """\
- version: $VERSION
  kind: ${KIND}
  role: $ROLE
  manageStatus: $MANAGE
  maxRunnerArtifacts: ${KEEP}
  reconcilePeriod: ${PERIOD}
  timeout: $PERIOD
  vars: $VARS
  finalizer: {name: "${KIND}.example.com/x", vars: $VARS}
  selector:
    matchLabels: {tier: "${KIND}", $KIND: x}
    matchExpressions: [{key: $KIND, operator: $OPERATOR, values: [$KIND]}]
"""
    path = project / "watches.yaml"
    path.write_text(text)
    environ = {"VERSION": "v1", "KIND": "web", "ROLE": "web", "MANAGE": "no", "KEEP": "3"}
    environ |= {"PERIOD": "5m", "VARS": "{a: b}", "OPERATOR": "In"}
    as_written = parse(Expanded(text, (1,)), Diagnostics("x"))
    assert as_written is not None

    assert warnings(path, environ) == []
    assert errors(as_written.plain()) == []


def test_warnings_of_the_loader_are_valid(project: Path) -> None:
    """Keys in another case and unknown ones are marked as warnings, by editors that can."""
    entry: dict[str, Any] = {
        "VERSION": "v1",
        "Kind": "Web",
        "Role": "web",
        "maxWorkers": 3,
        "selector": {"matchexpressions": [{"Key": "a", "Operator": "In", "Values": ["x"]}]},
        "finalizer": {"Name": "a/b", "VARS": {"x": 1}},
    }
    path = project / "watches.yaml"
    path.write_text(json.dumps([entry]))
    assert warnings(path, {}) == []
    assert errors([entry]) == []
    # As an editor reads `manageStatus: yes`.
    assert errors([{**entry, "manageStatus": "yes"}]) == []

    assert errors([{**entry, "Role": "web", "version": 1, "kind": ["Web"]}])
    del entry["Kind"]
    assert errors([entry])
    items = schema()["items"]
    written = [
        value["deprecationMessage"]
        for pattern, value in items["patternProperties"].items()
        if re.search(pattern, "KIND")
    ]
    assert written == ["works, but is written kind"]
    assert "ignored" in items["additionalProperties"]["deprecationMessage"]


def test_every_key_has_a_description() -> None:
    """The schema has a line about each key, and its default."""

    def all_keys(keys: tuple[Key, ...]) -> Iterator[Key]:
        for key in keys:
            yield key
            yield from all_keys(key.keys)

    assert [key.name for key in all_keys(ENTRY_KEYS) if not key.about.endswith(".")] == []
    properties = schema()["items"]["properties"]
    assert properties["maxRunnerArtifacts"]["default"] == 20
    assert properties["finalizer"]["properties"]["name"]["description"]
