"""The start of the operator: its probes before it is ready."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from operator_runner.ansible.executor import Launcher
from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.app import operator
from operator_runner.core.settings import (
    Address,
    AnsibleSettings,
    Concurrency,
    ExecutorName,
    LeaderElection,
    Settings,
)
from tests.contract.kube.scripted import ScriptedServer
from tests.contract.kube.waiting import until
from tests.support.operator import free_port


async def test_the_operator_is_ready_while_ansible_is_loaded(
    scripted: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probes do not depend on the fork server; the operator ends while that is starting."""
    loading = asyncio.Event()

    @asynccontextmanager
    async def open_launcher(
        kind: ExecutorName,
        ansible: AnsibleSettings,
        started: Callable[[], None],
        contents: Sequence[Path],
        names: ReservedNamesLoader,
        *,
        work_dir: Path,
    ) -> AsyncIterator[Launcher]:
        del kind, ansible, started, contents, names, work_dir
        loading.set()
        await asyncio.Event().wait()
        yield pytest.fail("was loaded")

    monkeypatch.setattr(operator, "open_launcher", open_launcher)
    port = free_port()
    starting = asyncio.create_task(operator.run(_settings(scripted, tmp_path, port), [], list))
    async with asyncio.timeout(60), ClientSession(f"http://127.0.0.1:{port}") as session:
        await loading.wait()
        assert (await session.get("/healthz")).status == 200

        async def is_ready() -> bool:
            return (await session.get("/readyz")).status == 200

        await until(is_ready)
        signal.raise_signal(signal.SIGTERM)
        assert await starting == 0


def _settings(scripted: ScriptedServer, tmp_path: Path, port: int) -> Settings:
    return Settings(
        watches_file=tmp_path / "watches.yaml",
        namespaces=(),
        kubeconfig=scripted.kubeconfig(),
        concurrency=Concurrency(1, 1),
        ansible=AnsibleSettings(),
        leader_election=LeaderElection(),
        metrics=None,
        probes=Address("127.0.0.1", port),
        user_metrics=None,
        proxy=Address("127.0.0.1", 0),
        work_dir=tmp_path / "work",
    )
