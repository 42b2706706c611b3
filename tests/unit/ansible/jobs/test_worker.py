"""When the container of a Job stops sending its output."""

from __future__ import annotations

import http.client
import io
import os
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from operator_runner.ansible.jobs import worker
from operator_runner.ansible.jobs.worker import OperatorConnection, RunEnded, Spool


class Response(io.BytesIO):
    """A response of the operator."""

    def __init__(self, status: int, offset: int = 0) -> None:
        super().__init__()
        self.status = status
        self.headers = {worker.OFFSET_HEADER: str(offset)}


class Connection:
    """A connection to an operator that responds as the test requests."""

    responses: list[Response]

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def request(self, *_: Any, **__: Any) -> None:
        """Send nothing."""

    def getresponse(self) -> Response:
        """Return the next response."""
        return self.responses.pop(0)


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OperatorConnection:
    """Return a connection whose responses are those of `Connection`."""
    monkeypatch.setattr(worker, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: None)
    monkeypatch.setattr(http.client, "HTTPSConnection", Connection)
    (tmp_path / "token").write_text("secret")
    return OperatorConnection(tmp_path, 1)


def spool_of(path: Path, text: bytes) -> Spool:
    """Return a spool with the whole output of a run."""
    spool = Spool(path)
    source, target = os.pipe()
    os.write(target, text)
    os.close(target)
    with os.fdopen(source, "rb") as reader:
        spool.fill(reader)
    return spool


def test_a_run_that_has_ended_gives_up_if_its_token_stays_refused(
    operator: OperatorConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator was killed before its last response, and the next one does not have the run."""
    monkeypatch.setattr(worker, "_REFUSED_SECONDS", 0.0)
    Connection.responses = [Response(401)]
    with pytest.raises(RunEnded):
        operator.send(spool_of(tmp_path / "output", b"text"))


def test_a_refused_token_is_tried_again(operator: OperatorConnection, tmp_path: Path) -> None:
    """A replica that no longer leads may have refused it."""
    Connection.responses = [Response(401), Response(200, 4)]
    operator.send(spool_of(tmp_path / "output", b"text"))
    assert Connection.responses == []


def test_a_running_play_does_not_give_up(
    operator: OperatorConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Job is ended by its deadline, or because no operator has answered for an hour."""
    monkeypatch.setattr(worker, "_REFUSED_SECONDS", 0.0)
    running: Any = SimpleNamespace(has_ended=False, is_complete=lambda _: True)
    Connection.responses = [Response(401), Response(401), Response(200)]
    operator.send(running)
    assert Connection.responses == []
