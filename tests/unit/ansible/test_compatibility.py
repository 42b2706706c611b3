"""Settings of ansible-core that keep existing roles working."""

from __future__ import annotations

import pytest
from ansible import constants

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


def test_a_setting_that_ansible_core_has_removed_has_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ansible-core 2.23 has no DEFAULT_JINJA2_NATIVE."""
    known = constants.config.get_configuration_definitions()
    known.pop("DEFAULT_JINJA2_NATIVE", None)
    monkeypatch.setattr(constants.config, "get_configuration_definitions", lambda: known)
    monkeypatch.setenv("ANSIBLE_JINJA2_NATIVE", "true")
    assert not uses_native_types()
