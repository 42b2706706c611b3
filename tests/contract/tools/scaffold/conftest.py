"""A project as `operator-runner init` and `create api` make it, by the commands themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scaffold import create_api, init


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with kinds of a role, of a playbook and of both; tests only read it."""
    root = tmp_path_factory.mktemp("scaffold") / "cache-operator"
    init(root, "--domain=scaffold.test")
    create_api(root, "Memcached", "--generate-role")
    create_api(root, "Proxy", "--generate-playbook")
    create_api(root, "Batch", "--generate-role", "--generate-playbook")
    return root
