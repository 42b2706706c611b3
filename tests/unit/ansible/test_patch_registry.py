"""The registry of patches."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from operator_runner.ansible.patches.registry import PATCHES, Patch


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_each_patch_names_an_existing_function(patch: Patch) -> None:
    """A rename of its module would switch it off with no more than a warning."""
    module, _, function = patch.install.partition(":")
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_names_of_patches_are_unique_and_requirements_exist() -> None:
    """OPERATOR_RUNNER_DISABLE_PATCHES selects them by name."""
    names = [patch.name for patch in PATCHES]
    assert len(set(names)) == len(names)
    assert {required for patch in PATCHES for required in patch.requires} <= set(names)


def test_there_are_few_patches_and_symbols() -> None:
    """Each one is checked with every version of ansible-core."""
    assert len(PATCHES) <= 20
    assert sum(len(patch.replaces) + len(patch.uses) for patch in PATCHES) <= 74
