"""Run a project through every launcher, and hold the records against each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from operator_runner.ansible.executor import Launcher, open_launcher
from operator_runner.ansible.forkserver.launcher import WarmLauncher
from operator_runner.core.settings import AnsibleSettings, ExecutorName
from tests.contract.ansible.launchers.projects import Project
from tests.contract.ansible.launchers.records import Record, differences

NAMES: tuple[ExecutorName, ExecutorName] = ("cold", "warm")


class Launchers:
    """Both launchers for some settings, open on one event loop until the block is left."""

    def __init__(self, settings: AnsibleSettings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._open: dict[str, Launcher] = {}

    def __enter__(self) -> Self:
        self._runner.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    async def _start(self) -> None:
        for name in NAMES:
            launcher = open_launcher(name, self._settings)
            self._open[name] = await self._stack.enter_async_context(launcher)
        # Cold would take over silently, and be compared with itself.
        assert isinstance(self._open["warm"], WarmLauncher)

    def run(self, name: str, project: Project, place: Path) -> Record:
        """Run a project in a new directory `place`, which is deleted afterwards."""
        record = self._runner.run(project.run(self._open[name], place / "site"))
        # Each launcher finds the same paths: nothing about them needs a mask.
        place.rename(place.with_name(f"{place.name}-{name}"))
        return record

    def compare(
        self,
        project: Project,
        place: Path,
        *,
        view: Callable[[Record], Record] = lambda record: record,
        own: Callable[[str], dict[str, Any]] = lambda _: {},
    ) -> Record:
        """Run a project through each launcher; return the record that they agree on.

        `view` selects the comparable part of the record (see views.py). `own` gives
        fields of the project for one launcher by its name.
        """
        records = [self.run(name, replace(project, **own(name)), place) for name in NAMES]
        first, second = map(view, records)
        found = differences((NAMES[0], NAMES[1]), first, second)
        assert not found, f"the launchers differ:\n{found}"
        return first


class Both:
    """Runs a case of a test through both launchers."""

    def __init__(self, launchers: Launchers, tmp_path: Path) -> None:
        self._launchers = launchers
        self._tmp_path = tmp_path
        self._cases = 0

    def __call__(self, project: Project, **options: Any) -> Record:
        """Return the common record of both launchers; see `Launchers.compare`."""
        self._cases += 1
        return self._launchers.compare(project, self._tmp_path / f"case{self._cases}", **options)
