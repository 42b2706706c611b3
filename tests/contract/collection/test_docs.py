"""What ansible-doc shows of operator_sdk.util: an author finds every option there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.operator import REPOSITORY

COLLECTIONS = REPOSITORY / "operator_runner" / "collections"
HOME = COLLECTIONS / "ansible_collections" / "operator_sdk" / "util"
FILTERS = ("label_selectors", "owned_by")
MODULES = ("k8s_event", "k8s_status", "osdk_metric", "requeue_after")
# Options of the last release of the collection that these modules take the place of.
OPTIONS = {
    "k8s_event": "state name namespace merge_type message reason reportingComponent type source"
    " involvedObject appendTimestamp",
    "k8s_status": "api_version kind name namespace status conditions replace replace_lists",
    "osdk_metric": "name description address counter gauge histogram summary",
    "requeue_after": "time",
}


@pytest.fixture(scope="module")
def docs() -> dict[str, Any]:
    """Run ansible-doc once for all modules."""
    return documentation("module", MODULES)


def documentation(kind: str, plugins: Sequence[str]) -> dict[str, Any]:
    """Return what ansible-doc shows, by the short names of the plugins."""
    names = [f"operator_sdk.util.{plugin}" for plugin in plugins]
    shown = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-doc"), "--json", f"--type={kind}", *names],
        env=os.environ | {"ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS)},
        capture_output=True,
        check=True,
    )
    return {name.rpartition(".")[2]: found for name, found in json.loads(shown.stdout).items()}


def test_the_commands_of_the_page_show_the_documentation() -> None:
    """In the repository, whose collection is not on the default path of Ansible."""
    page = (REPOSITORY / "docs" / "collection.md").read_text()
    commands = [line for line in page.splitlines() if " ansible-doc " in line]
    programs = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    assert len(commands) == 2
    for command in commands:
        shown = subprocess.run(
            ["bash", "-c", command],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert command.split()[-1] in shown.stdout


@pytest.mark.parametrize("module", MODULES)
def test_every_module_is_documented(docs: dict[str, Any], module: str) -> None:
    """Each has its options, examples with its full name, and its return values."""
    shown = docs[module]
    assert set(OPTIONS[module].split()) <= shown["doc"]["options"].keys()
    tasks = yaml.safe_load(shown["examples"])
    assert all(f"operator_sdk.util.{module}" in task for task in tasks)
    given = {key for task in tasks for key in task[f"operator_sdk.util.{module}"]}
    assert given <= shown["doc"]["options"].keys()
    assert shown["return"]
    assert shown["doc"]["attributes"]["check_mode"]["support"] == "full"


def test_every_filter_is_documented() -> None:
    """Each has its options, examples with its full name, and return values."""
    for name, shown in documentation("filter", FILTERS).items():
        assert "_input" in shown["doc"]["options"]
        assert f"operator_sdk.util.{name}" in shown["examples"]
        assert shown["return"]["_value"]["description"]


def test_the_collection_has_the_files_of_galaxy() -> None:
    """Name, version and required Ansible are in the files that Galaxy reads."""
    galaxy = yaml.safe_load((HOME / "galaxy.yml").read_text())
    assert (galaxy["namespace"], galaxy["name"]) == ("operator_sdk", "util")
    assert tuple(map(int, galaxy["version"].split("."))) > (0, 5, 0)
    runtime = yaml.safe_load((HOME / "meta" / "runtime.yml").read_text())
    assert runtime["requires_ansible"]
    readme = (HOME / galaxy["readme"]).read_text()
    assert all(f"## {name}" in readme for name in MODULES + FILTERS)


def test_modules_import_nothing_deprecated_of_ansible_core() -> None:
    """`ansible.module_utils.six` and its kin are deprecated: no module may warn for them."""
    for path in HOME.rglob("*.py"):
        assert "module_utils.six" not in path.read_text(), path
