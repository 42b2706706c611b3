"""Imports of packages without their parts."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from operator_runner.core.imports import (
    environment_variable,
    import_lazily,
    without_garbage_collection,
    without_package,
)

NAME = "package_of_test_imports"
FILES = {
    "__init__.py": f"from {NAME} import large, inner\nVERSION = '1.2'\n",
    "large.py": "value = 1\n",
    "inner/__init__.py": f"import {NAME}.inner.small\nimport {NAME}.large\n",
    "inner/small.py": "value = 2\n",
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package of packages; remove it from sys.modules after the test."""
    for path, text in FILES.items():
        file = tmp_path / NAME / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in _loaded():
        del sys.modules[name]


def _loaded() -> set[str]:
    return {name for name in sys.modules if name.partition(".")[0] == NAME}


def _package() -> ModuleType:
    import_lazily(NAME, f"{NAME}.inner")
    return sys.modules[NAME]


def test_the_import_of_a_submodule_imports_no_other() -> None:
    """`import a.b.c` imports c, and neither the other parts of a nor those of b."""
    _package()
    assert __import__(f"{NAME}.inner.small").inner.small.value == 2
    assert _loaded() == {NAME, f"{NAME}.inner", f"{NAME}.inner.small"}


def test_an_attribute_imports_the_submodule() -> None:
    """The parts of a package are there without an import of their own."""
    package = _package()
    assert package.large.value == 1
    assert package.inner.small.value == 2


def test_other_attributes_are_those_of_the_whole_package() -> None:
    """Names of `__init__` are available, and other names raise AttributeError."""
    package = _package()
    assert package.VERSION == "1.2"
    assert f"{NAME}.large" in _loaded()
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        _ = package.missing


def test_an_imported_package_stays_the_same() -> None:
    """Its users see the same module as before."""
    whole = __import__(NAME)
    assert _package() is whole


def test_a_package_that_is_not_installed_is_reported() -> None:
    """The error is that of an ordinary import."""
    with pytest.raises(ModuleNotFoundError, match="No module named 'not_installed'"):
        import_lazily("not_installed")


def test_objects_of_imports_are_not_collected() -> None:
    """The collector is enabled again, and ignores earlier objects."""
    before = gc.get_freeze_count()
    try:
        with without_garbage_collection():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def test_a_module_is_loaded_by_its_first_use() -> None:
    """Its location and name are known before the import."""
    import_lazily(NAME, f"{NAME}.large")
    module = sys.modules[f"{NAME}.large"]
    assert str(module.__file__).endswith("large.py")
    assert "value" not in vars(module)
    assert module.value == 1


def test_a_package_can_be_left_out() -> None:
    """Its import fails within the block, and succeeds afterwards."""
    with without_package(NAME), pytest.raises(ImportError):
        __import__(NAME)
    assert __import__(NAME).VERSION == "1.2"


def test_an_imported_package_is_not_left_out() -> None:
    """Modules that have it keep it, and others get the same one."""
    package = __import__(NAME)
    with without_package(NAME):
        assert __import__(NAME) is package
    assert sys.modules[NAME] is package


@pytest.mark.parametrize("before", [None, "before"])
def test_a_variable_is_set_within_a_block(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """Afterwards it has its former value, or none."""
    if before is not None:
        monkeypatch.setenv(NAME, before)
    with environment_variable(NAME, "within"):
        assert os.environ[NAME] == "within"
    assert os.environ.get(NAME) == before
