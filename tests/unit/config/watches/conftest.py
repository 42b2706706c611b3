"""A project directory for the watches files of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with the role `web` and the playbook `site.yml` in it."""
    tasks = tmp_path / "roles" / "web" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text("[]\n")
    (tmp_path / "site.yml").write_text("[]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path
