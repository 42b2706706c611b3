"""Tokens: one for each run, void afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from operator_runner.core.model import GVK, RunContent, Watch
from operator_runner.proxy.ownership import Owner
from operator_runner.proxy.run_tokens import Grant, Grants, kubeconfig

WATCH = Watch(GVK("cache.example.com", "v1alpha1", "Memcached"), RunContent(role=Path("/roles/m")))


def test_each_token_belongs_to_its_run(owner: Owner, global_owner: Owner) -> None:
    """Each token is valid for its own run, and only until the run ends."""
    grants = Grants()
    first, second = Grant(owner, WATCH, "1"), Grant(global_owner, WATCH, "2")
    with grants.issue(first) as one:
        with grants.issue(second) as two:
            assert grants.find(f"Bearer {one}") is first
            assert grants.find(f"bearer {two}") is second
        assert grants.find(f"Bearer {two}") is None
    assert grants.find(f"Bearer {one}") is None


def test_a_failing_run_loses_its_token(owner: Owner) -> None:
    """An error inside the block does not leave the token valid."""
    grants = Grants()
    with (
        pytest.raises(RuntimeError, match="play"),
        grants.issue(Grant(owner, WATCH, "1")) as token,
    ):
        raise RuntimeError("play")
    assert grants.find(f"Bearer {token}") is None


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer {}x"])
def test_only_the_whole_bearer_token_is_accepted(owner: Owner, header: str) -> None:
    """Nothing but the whole token as a bearer token is accepted."""
    grants = Grants()
    with grants.issue(Grant(owner, WATCH, "1")) as token:
        assert grants.find(header.format(token)) is None


def test_kubeconfigs_differ_in_token_and_namespace_only() -> None:
    """Clients that key caches by server and user share them between runs."""
    texts = [
        kubeconfig("https://127.0.0.1:8888", Path("/run/ca.crt"), namespace, token)
        for namespace, token in (("a", "secret-1"), ("b", "secret-2"))
    ]
    first, second = map(yaml.safe_load, texts)
    assert first["contexts"][0]["context"].pop("namespace") == "a"
    assert second["contexts"][0]["context"].pop("namespace") == "b"
    assert first["users"][0]["user"].pop("token") == "secret-1"
    assert second["users"][0]["user"].pop("token") == "secret-2"
    assert first == second
