"""The nginx operator has exactly the permissions that it needs; the check finds missing ones."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.config.watches import load
from operator_runner.core.model import Json
from operator_runner.proxy.permission_log import read
from operator_runner.tools.rbac.access_rules import KindTable, Requirement
from operator_runner.tools.rbac.grants import differences, grants_in
from operator_runner.tools.rbac.manager_deployment import features_of, find_manager
from operator_runner.tools.rbac.render import manifest
from operator_runner.tools.rbac.requirements import (
    LEADER,
    RequirementSources,
    requirements_of,
    warnings_of,
)
from operator_runner.tools.yaml_io import read_objects
from tests.support.operator import REPOSITORY

CONFIG = REPOSITORY / "config"
CHECKED = read_objects([CONFIG / part for part in ("rbac", "manager", "webhook")])
MANAGER = find_manager(CHECKED)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find roles as in a shell in the project's folder."""
    monkeypatch.chdir(REPOSITORY)


def requirements() -> list[Requirement]:
    assert MANAGER is not None
    watches = load(Path("watches.yaml"), os.environ).watches
    recorded = tuple(read(CONFIG / "rbac" / "requests.yaml"))
    kinds = KindTable(read_objects([REPOSITORY / "crds"]))
    project = RequirementSources(watches, recorded, kinds, features_of(MANAGER, watches))
    assert list(warnings_of(project)) == []
    return requirements_of(project, names=False)


def test_the_nginx_operator_has_exact_permissions() -> None:
    """The check of config/rbac, config/manager and config/webhook reports nothing."""
    assert differences(requirements(), grants_in(CHECKED, MANAGER)) == []


@pytest.mark.parametrize(
    ("file", "roles"), [("role.yaml", "manager-role"), ("leader_election_role.yaml", LEADER)]
)
def test_the_files_are_as_the_command_writes_them(file: str, roles: str) -> None:
    """`make manifests` would change nothing."""
    own = [requirement for requirement in requirements() if requirement.role == roles]
    assert (CONFIG / "rbac" / file).read_text() == manifest(own)


def test_each_removed_verb_is_reported() -> None:
    """So is each whole rule: the check has the verb, the resource and the reason."""
    required = requirements()
    lessened = list(_lessened())
    assert len(lessened) > 20
    for verb, resource, checked in lessened:
        lines = differences(required, grants_in(checked, MANAGER))
        reported = [line.startswith(f"missing: {verb} {resource}") for line in lines]
        # A line for each of those who need it.
        assert reported, (verb, resource)
        assert all(reported), lines


def test_each_added_verb_is_superfluous() -> None:
    """Any additional verb of a rule is reported."""
    required = requirements()
    for place, rule in _rules():
        checked = copy.deepcopy(CHECKED)
        checked[place]["rules"][rule]["verbs"].append("deletecollection")
        lines = differences(required, grants_in(checked, MANAGER))
        assert [line.partition(" ")[0] for line in lines] == ["superfluous:"]


def _rules() -> Iterator[tuple[int, int]]:
    """Yield the places of the rules that are bound to the operator."""
    for place, body in enumerate(CHECKED):
        users = body["metadata"]["name"].endswith(("editor-role", "viewer-role"))
        if body["kind"] in {"Role", "ClusterRole"} and not users:
            yield from ((place, rule) for rule in range(len(body["rules"])))


def _lessened() -> Iterator[tuple[str, str, list[Json]]]:
    """Yield the manifests with one verb less each time, and which."""
    for place, rule in _rules():
        whole = CHECKED[place]["rules"][rule]
        for verb in whole["verbs"]:
            checked = copy.deepcopy(CHECKED)
            checked[place]["rules"][rule]["verbs"].remove(verb)
            yield verb, whole["resources"][0].partition("/")[0], checked
