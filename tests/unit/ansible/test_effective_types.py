"""The types of template results, and the setting that selects them."""

from __future__ import annotations

from pathlib import Path

from operator_runner.ansible.templating.effective_types import TemplateTypes, effective_types
from operator_runner.core.model import GVK, RunContent, Watch


def watch(kind: str, native: bool | None) -> Watch:
    return Watch(GVK("example.com", "v1", kind), RunContent(), native_types=native)


def test_a_watch_decides_for_its_kind(tmp_path: Path) -> None:
    """Without nativeTypes the environment variable applies, and it overrides ansible.cfg."""
    (tmp_path / ".ansible.cfg").write_text("[defaults]\njinja2_native = false\n")
    watches = [watch("A", True), watch("B", None), watch("C", False), watch("D", True)]
    found = list(effective_types(watches, {"ANSIBLE_JINJA2_NATIVE": "True"}, tmp_path))
    assert found == [
        TemplateTypes("native", "nativeTypes in watches.yaml", ("A", "D")),
        TemplateTypes("native", "ANSIBLE_JINJA2_NATIVE", ("B",)),
        TemplateTypes("text", "nativeTypes in watches.yaml", ("C",)),
    ]


def test_ansible_cfg_decides_where_nothing_else_does(tmp_path: Path) -> None:
    """It is the file that Ansible reads."""
    config = tmp_path / "project.cfg"
    config.write_text("[defaults]\njinja2_native = yes\n")
    environ = {"ANSIBLE_CONFIG": str(config)}
    (found,) = effective_types([watch("A", None)], environ, tmp_path)
    assert found == TemplateTypes("native", str(config), ("A",))


def test_templates_give_text_by_default(tmp_path: Path) -> None:
    """The default is text, also with an invalid ansible.cfg."""
    (tmp_path / ".ansible.cfg").write_text("jinja2_native = true\n")
    (found,) = effective_types([watch("A", None)], {}, tmp_path)
    assert found == TemplateTypes("text", "default", ("A",))
