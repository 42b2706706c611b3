"""Run a project through every launcher, and hold the records against each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from operator_runner.ansible.cold.launcher import ColdLauncher
from operator_runner.ansible.executor import Launcher, open_launcher
from operator_runner.ansible.forkserver.launcher import WarmLauncher
from operator_runner.core.settings import AnsibleSettings, ExecutorName
from tests.contract.ansible.launchers.pods import Pods
from tests.contract.ansible.launchers.projects import Project
from tests.contract.ansible.launchers.records import Record, differences
from tests.contract.ansible.launchers.views import without_place

NAMES: tuple[ExecutorName, ExecutorName] = ("cold", "warm")
JOB = "job"
"""Name of the third launcher, which starts Jobs."""
_OF_COLD_RUNS = {"template-error-lines"}
"""Patches that cold runs have too, unless they are disabled."""


class Launchers:
    """All launchers for some settings, open on one event loop until the block is left.

    For each name of `patches`, a warm launcher without this patch of ansible-core is opened beside
    the others.
    """

    def __init__(self, settings: AnsibleSettings, patches: Iterable[str] = ()) -> None:
        self._settings = settings
        self._pairs: list[tuple[str, str]] = [NAMES]
        """Names of launchers whose records are compared."""
        self._patches = tuple(patches)
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._open: dict[str, Launcher] = {}
        self._pods: Pods | None = None

    def __enter__(self) -> Self:
        self._runner.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    async def _start(self) -> None:
        for kind in NAMES:
            launcher = open_launcher(kind, self._settings)
            self._open[kind] = await self._stack.enter_async_context(launcher)
        for patch in self._patches:
            await self._start_without(patch)
        # Cold would take over silently, and be compared with itself.
        for _, name in self._pairs:
            assert isinstance(self._open[name], WarmLauncher), name

    async def _start_without(self, patch: str) -> None:
        cold, warm = (f"{name}-without-{patch}" for name in NAMES)
        settings = replace(self._settings, disabled_patches=(patch,))
        self._open[warm] = await self._stack.enter_async_context(open_launcher("warm", settings))
        if patch in _OF_COLD_RUNS:
            self._open[cold] = ColdLauncher(settings)
            self._pairs.append((cold, warm))
        else:
            self._pairs.append((NAMES[0], warm))

    @property
    def names(self) -> Iterable[str]:
        """The names of all local launchers."""
        return self._open

    def open_pods(self, pods: Pods) -> None:
        """Open what Jobs need, until the block is left."""
        self._pods = self._runner.run(self._stack.enter_async_context(pods))

    def run(self, name: str, project: Project, place: Path) -> Record:
        """Run a project in a new directory `place`, which is deleted afterwards."""
        record = self._runner.run(project.run(self._launcher(name, project, place), place / "site"))
        # Each launcher finds the same paths: nothing about them needs a mask.
        place.rename(place.with_name(f"{place.name}-{name}"))
        return record

    def _launcher(self, name: str, project: Project, place: Path) -> Launcher:
        if name != JOB:
            return self._open[name]
        assert self._pods is not None
        return self._pods.launcher(project.settings(place / "site", self._settings))

    def compare(
        self,
        project: Project,
        place: Path,
        *,
        view: Callable[[Record], Record] = lambda record: record,
        own: Callable[[str], dict[str, Any]] = lambda _: {},
        with_job: bool = False,
    ) -> Record:
        """Run a project through each launcher; return the record that they agree on.

        `view` selects the comparable part of the record (see views.py). `own` gives
        fields of the project for one launcher by its name. `with_job` adds a run as a Job, for
        which `open_pods` must have been called.
        """
        names = [*self._open, *([JOB] if with_job else [])]
        records = {
            name: view(self.run(name, replace(project, **own(name)), place)) for name in names
        }
        for pair in self._pairs:
            found = differences(pair, *(records[name] for name in pair))
            assert not found, f"the launchers differ:\n{found}"
        first = records[NAMES[0]]
        if with_job:
            found = differences((NAMES[0], JOB), *map(without_place, (first, records[JOB])))
            assert not found, f"the launchers differ:\n{found}"
        return first


class Both:
    """Runs a case of a test through both local launchers, and as a Job if asked to."""

    def __init__(self, launchers: Launchers, tmp_path: Path, *, with_job: bool = False) -> None:
        self._launchers = launchers
        self._with_job = with_job
        self._tmp_path = tmp_path
        self._cases = 0

    def __call__(self, project: Project, **options: Any) -> Record:
        """Return the common record of the launchers; see `Launchers.compare`."""
        self._cases += 1
        place = self._tmp_path / f"case{self._cases}"
        return self._launchers.compare(project, place, with_job=self._with_job, **options)
