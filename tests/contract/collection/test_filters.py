"""Filters of operator_sdk.util, in a play."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.operator import REPOSITORY

COLLECTIONS = REPOSITORY / "operator_runner" / "collections"
SELECTOR = {
    "matchLabels": {"team": "a"},
    "matchExpressions": [
        {"key": "tier", "operator": "NotIn", "values": ["x", "y"]},
        {"key": "web", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist"},
    ],
}


def owned(name: str, *owners: str) -> dict[str, Any]:
    """Return an object with these owners."""
    return {"metadata": {"name": name, "ownerReferences": [{"uid": uid} for uid in owners]}}


OBJECTS = [owned("ours", "u"), owned("shared", "v", "u"), owned("theirs", "v"), {"metadata": {}}]
CASES: dict[str, tuple[str, Any]] = {
    "selector": (
        "selector | operator_sdk.util.label_selectors",
        ["team=a", "tier notin (x,y)", "web", "!old"],
    ),
    "everything": ("{} | operator_sdk.util.label_selectors", []),
    "owned": (
        "objects | operator_sdk.util.owned_by(owner) | map(attribute='metadata.name')",
        ["ours", "shared"],
    ),
}
ERRORS = {
    "snake_case": (
        "{'match_labels': {}} | operator_sdk.util.label_selectors",
        "match_labels: a LabelSelector has matchLabels and matchExpressions",
    ),
    "text": ("'team=a' | operator_sdk.util.label_selectors", "expected a LabelSelector"),
    "operator": (
        "{'matchExpressions': [{'key': 'a', 'operator': 'Gt'}]}|operator_sdk.util.label_selectors",
        "the operator Gt is not In",
    ),
    "no_owner": ("objects | operator_sdk.util.owned_by({})", "the owner has no metadata.uid"),
}


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Evaluate all cases in one play; an error is the message of its task."""
    folder = tmp_path_factory.mktemp("filters")
    given = {"selector": SELECTOR, "objects": OBJECTS, "owner": {"metadata": {"uid": "u"}}}
    tasks: list[dict[str, Any]] = [
        {
            "ansible.builtin.debug": {"msg": f"{{{{ {expression} }}}}"},
            "register": name,
            "ignore_errors": True,
        }
        for name, (expression, _) in (CASES | ERRORS).items()
    ]
    names = ", ".join(f"'{name}': {name}.msg" for name in CASES | ERRORS)
    content = f"{{{{ {{{names}}} | to_json }}}}"
    tasks.append({"ansible.builtin.copy": {"content": content, "dest": str(folder / "out")}})
    book = folder / "play.json"
    book.write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": given, "tasks": tasks}])
    )
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "--connection=local", book],
        env=os.environ | {"ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((folder / "out").read_text())
    return found


@pytest.mark.parametrize("case", CASES)
def test_filters_return_requirements_and_owned_objects(play: dict[str, Any], case: str) -> None:
    """Requirements as k8s_info takes them, and objects in their order."""
    assert play[case] == CASES[case][1]


@pytest.mark.parametrize("case", ERRORS)
def test_invalid_input_is_an_error_with_the_expected_format(
    play: dict[str, Any], case: str
) -> None:
    """A selector that is not understood must not select everything."""
    assert ERRORS[case][1] in play[case]
