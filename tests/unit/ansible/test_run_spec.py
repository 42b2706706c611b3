"""The environment of runs."""

from __future__ import annotations

import getpass
import os

import pytest

from operator_runner.ansible.run_spec import common_environment
from operator_runner.core.settings import AnsibleSettings


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("No username set")])
def test_a_user_without_a_name_gets_one(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A container may have any user id; Python raises OSError since 3.13."""

    def fail() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", fail)
    assert common_environment(AnsibleSettings())["LOGNAME"] == f"uid={os.getuid()}"


def test_a_user_with_a_name_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment, or from the user database."""
    monkeypatch.setenv("LOGNAME", "ansible")
    assert "LOGNAME" not in common_environment(AnsibleSettings())
