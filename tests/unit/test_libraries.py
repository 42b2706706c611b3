"""Third-party libraries: the modules that import them, and private names of kopf."""

from __future__ import annotations

import re
from importlib.metadata import files

import pytest

from operator_runner.telemetry.logs import KOPF_OBJECT_ATTRIBUTE, KOPF_RETRY_TEXT, LOGGED_TWICE
from tests.support.operator import REPOSITORY

OWNERS = {
    "cronsim": {"core/timetable.py"},
    "cryptography": {"net/x509.py"},
    "jmespath": {"config/watches/expressions.py"},
    "jsonpatch": {"proxy/dry_run/patches.py"},
    "kopf": {"controller/sources/primary.py"},
    "kubernetes": {"kube/credential_files.py"},
    "opentelemetry": {"telemetry/tracing/provider.py"},
}
_IMPORT = re.compile(r"^\s*(?:from|import) ([\w.]+)", re.MULTILINE)


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Return the imported modules of each module of the package, without the collection."""
    package = REPOSITORY / "operator_runner"
    return {
        str(path.relative_to(package)): set(_IMPORT.findall(path.read_text()))
        for path in package.rglob("*.py")
        if "collections" not in path.relative_to(package).parts
    }


@pytest.mark.parametrize("library", OWNERS)
def test_a_library_is_imported_by_its_owner_alone(
    library: str, imports: dict[str, set[str]]
) -> None:
    """The rest of the package does not depend on its API and its errors."""
    users = {
        name
        for name, modules in imports.items()
        if any(module.partition(".")[0] == library for module in modules)
    }
    assert users == OWNERS[library]


def test_only_public_modules_of_kopf_are_imported(imports: dict[str, set[str]]) -> None:
    """A release of kopf may change all others."""
    modules = {module for found in imports.values() for module in found}
    assert {module for module in modules if module.partition(".")[0] == "kopf"} == {"kopf"}


@pytest.mark.parametrize("name", LOGGED_TWICE)
def test_the_silenced_loggers_of_kopf_exist(name: str) -> None:
    """They are named after private modules of kopf: a renamed one would log errors twice."""
    path = f"{name.replace('.', '/')}.py"
    assert path in {str(each) for each in files("kopf") or ()}


@pytest.mark.parametrize("text", [KOPF_OBJECT_ATTRIBUTE, KOPF_RETRY_TEXT])
def test_kopf_has_the_texts_that_the_log_depends_on(text: str) -> None:
    """Changed ones would log retries as errors, and lines without their object."""
    sources = (each for each in files("kopf") or () if each.suffix == ".py")
    assert any(text in each.read_text() for each in sources)
