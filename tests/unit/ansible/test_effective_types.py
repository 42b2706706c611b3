"""The types of template results, and the setting that selects them."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.ansible.templating.effective_types import TemplateTypes, effective_types
from operator_runner.core.model import GVK, RunContent, Watch


def watch(kind: str, native: bool | None) -> Watch:
    return Watch(GVK("example.com", "v1", kind), RunContent(), native_types=native)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory without settings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_watch_decides_for_its_kind(home: Path) -> None:
    """Without nativeTypes the environment variable applies, and it overrides ansible.cfg."""
    (home / ".ansible.cfg").write_text("[defaults]\njinja2_native = false\n")
    watches = [watch("A", True), watch("B", None), watch("C", False), watch("D", True)]
    found = list(effective_types(watches, {"ANSIBLE_JINJA2_NATIVE": "True"}))
    assert found == [
        TemplateTypes("native", "nativeTypes in watches.yaml", ("A", "D")),
        TemplateTypes("native", "ANSIBLE_JINJA2_NATIVE", ("B",)),
        TemplateTypes("text", "nativeTypes in watches.yaml", ("C",)),
    ]


def test_ansible_cfg_decides_where_nothing_else_does(home: Path) -> None:
    """It is the file that Ansible reads."""
    config = home / "project.cfg"
    config.write_text("[defaults]\njinja2_native = yes\n")
    environ = {"ANSIBLE_CONFIG": str(config)}
    (found,) = effective_types([watch("A", None)], environ)
    assert found == TemplateTypes("native", str(config), ("A",))
    environ["ANSIBLE_CONFIG"] = "~/project.cfg"
    assert list(effective_types([watch("A", None)], environ)) == [found]
    config.rename(home / ".ansible.cfg")
    (found,) = effective_types([watch("A", None)], environ)
    assert found.set_by == str(home / ".ansible.cfg"), "as the named file does not exist"


def test_templates_give_text_by_default(home: Path) -> None:
    """The default is text, also with an invalid ansible.cfg."""
    (home / ".ansible.cfg").write_text("jinja2_native = true\n")
    (found,) = effective_types([watch("A", None)], {})
    assert found == TemplateTypes("text", "default", ("A",))
