"""The relay of a Pod connects to the replica that has its run."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from operator_runner.ansible.jobs import worker
from operator_runner.ansible.jobs.worker import Replicas


class Found(Replicas):
    """Replicas of which one has the run, at an address that the test sets."""

    owner: tuple[str, int] | None

    def _ask(self, address: tuple[str, int]) -> tuple[str, int] | None:
        return self.owner if address in {self.owner, self._address} else None


@pytest.fixture
def replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Found:
    """Return replicas behind an address; the run is nowhere."""
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: None)
    monkeypatch.setattr(worker, "_SEARCH_SECONDS", 0.0)
    (tmp_path / "token").write_text("secret")
    found = Found(("192.0.2.1", 443), tmp_path, "uid")
    found.owner = None
    return found


def test_connections_to_the_former_owner_are_closed(replicas: Found) -> None:
    """It may be frozen, and would answer the play only after the run has ended elsewhere.

    If its node has failed, no probe is acknowledged.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        replicas.owner = first.getsockname()
        early = replicas.connect()
        assert early.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        assert early.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert early.getpeername() == first.getsockname()
        replicas.owner = second.getsockname()
        late = replicas.connect()
        assert late.getpeername() == second.getsockname()
        assert early.recv(1) == b""
        early.close()
        late.close()


def test_no_replica_has_the_run(replicas: Found) -> None:
    """Between the failure of its owner and the takeover a connection is tried again."""
    with pytest.raises(OSError, match="no replica has the run"):
        replicas.connect()
