"""Settings of ansible-core that keep existing roles working."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible import constants
from ansible.config.manager import ConfigManager

from operator_runner.ansible.templating.compatibility import keep_injected_facts, uses_native_types

VARIABLE = "ANSIBLE_INJECT_FACT_VARS"


@pytest.mark.parametrize(("given", "expected"), [(None, "true"), ("false", "false")])
def test_facts_are_injected_unless_the_environment_decides(
    monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
) -> None:
    """The variable of the user takes precedence."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    if given is not None:
        monkeypatch.setenv(VARIABLE, given)
    keep_injected_facts()
    value, origin = constants.config.get_config_value_and_origin("INJECT_FACTS_AS_VARS")
    assert (str(value).lower(), origin) == (expected, f"env: {VARIABLE}")


@pytest.mark.parametrize(
    ("variable", "in_file", "expected"),
    [
        (None, "", False),
        ("true", "", True),
        ("false", "true", False),
        (None, "yes", True),
        (None, "false", False),
    ],
)
def test_native_types_are_selected_with_any_ansible_core(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    in_file: str,
    expected: bool,
) -> None:
    """By the environment, or else ansible.cfg, also where ansible-core has removed the setting."""
    file, definitions = tmp_path / "ansible.cfg", tmp_path / "base.yml"
    file.write_text(f"[defaults]\njinja2_native = {in_file}\n" if in_file else "")
    definitions.write_text("OTHER: {default: 1}\n")
    monkeypatch.setenv("ANSIBLE_JINJA2_NATIVE", variable or "")
    if variable is None:
        monkeypatch.delenv("ANSIBLE_JINJA2_NATIVE")
    for manager in (ConfigManager(str(file)), ConfigManager(str(file), str(definitions))):
        monkeypatch.setattr(constants, "config", manager)
        assert uses_native_types() is expected


def test_settings_that_ansible_core_has_removed_are_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Facts are variables no longer where there is no setting for them."""
    monkeypatch.setattr(constants.config, "get_configuration_definitions", lambda **_: {})
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    keep_injected_facts()
    assert VARIABLE not in os.environ
