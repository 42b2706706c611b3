"""The table of modules against those that are installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import operator_runner
from operator_runner.core.ansible_modules import (
    MODULES,
    Trait,
    has_trait,
    modules_with,
    traits_of,
)

_ADDED_LATER = {"kubeconfig"}
"""Modules that the oldest supported version of their collection does not have."""
_TARGETS = (Trait.PLAY, Trait.HOST, Trait.CLUSTER, Trait.CONTAINER, Trait.OPERATOR)


def _folder(collection: str) -> Path:
    spec = find_spec("ansible")
    assert spec is not None
    assert spec.origin is not None
    ansible = Path(spec.origin).parent
    if collection == "ansible.builtin":
        return ansible / "modules"
    parent = ansible.parent
    if collection == "operator_sdk.util":
        parent = Path(operator_runner.__file__).parent / "collections"
    return parent.joinpath("ansible_collections", *collection.split("."), "plugins", "modules")


def _installed(collection: str) -> set[str]:
    return {path.stem for path in _folder(collection).glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("collection", MODULES)
def test_each_installed_module_is_in_the_table(collection: str) -> None:
    """A new version of a collection adds modules: decide what each of them acts on."""
    installed = _installed(collection)
    assert installed, f"no modules in {_folder(collection)}"
    missing = installed - set(MODULES[collection])
    assert not missing, (
        f"no traits: {sorted(missing)} of {collection};"
        " add them to operator_runner/core/ansible_modules.py"
    )


@pytest.mark.parametrize("collection", ["kubernetes.core", "operator_sdk.util"])
def test_each_module_in_the_table_is_installed(collection: str) -> None:
    """A module of ansible.builtin may be of another version of ansible-core."""
    assert set(MODULES[collection]) - _ADDED_LATER <= _installed(collection)


@pytest.mark.parametrize("collection", MODULES)
def test_each_module_acts_on_one_thing(collection: str) -> None:
    """On the play, the host, the cluster, a container or the operator."""
    for name in MODULES[collection]:
        traits = traits_of(f"{collection}.{name}")
        assert sum(target in traits for target in _TARGETS) == 1, name


def test_no_two_collections_have_a_module_of_the_same_name() -> None:
    """Otherwise the traits of a short name would be those of another module."""
    names = [name for modules in MODULES.values() for name in modules]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("action", "trait", "expected"),
    [
        ("k8s", Trait.CLUSTER, True),
        ("kubernetes.core.k8s", Trait.CLUSTER, True),
        ("community.okd.k8s", Trait.CLUSTER, True),
        ("redhat.openshift.openshift_route", Trait.PREVIEWED, True),
        ("example.com.k8s", Trait.CLUSTER, False),
        ("kubernetes.core.k8s_exec", Trait.CONTAINER, True),
        ("k8s_cp", Trait.CONTAINER, True),
        ("kubernetes.core.k8s_drain", Trait.PREVIEWED, False),
        ("kubernetes.core.kubeconfig", Trait.WRITES_FILE, True),
        ("ansible.legacy.setup", Trait.PRELOADED_PROGRAM, True),
        ("operator_sdk.util.requeue_after", Trait.REQUEUES, True),
        ("community.general.debug", Trait.PLAY, False),
        ("", Trait.PLAY, False),
    ],
)
def test_modules_are_known_by_their_short_and_full_names(
    action: str, trait: Trait, expected: bool
) -> None:
    """Those of ansible.builtin as ansible.legacy too, those of kubernetes.core by older names."""
    assert has_trait(action, trait) is expected


def test_modules_of_other_collections_have_no_traits() -> None:
    """What they act on is not known."""
    assert traits_of("community.general.mail") == Trait(0)


def test_modules_with_a_trait_have_their_full_names() -> None:
    """As results of tasks have them."""
    assert modules_with(Trait.CONTAINER) == {"kubernetes.core.k8s_cp", "kubernetes.core.k8s_exec"}
