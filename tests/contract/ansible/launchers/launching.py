"""Run a project through every launcher, and hold the records against each other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from operator_runner.ansible.executor import Launcher, open_launcher
from operator_runner.ansible.forkserver.launcher import WarmLauncher
from operator_runner.config.flags.environment import disabled_patches
from operator_runner.core.settings import AnsibleSettings, ExecutorName
from tests.contract.ansible.launchers.pods import Pods
from tests.contract.ansible.launchers.projects import Project
from tests.contract.ansible.launchers.records import Record, differences
from tests.contract.ansible.launchers.views import without_place

NAMES: tuple[ExecutorName, ExecutorName] = ("cold", "warm")
JOB = "job"
"""Name of the third launcher, which starts Jobs."""


class Launchers:
    """All launchers for some settings, open on one event loop until the block is left."""

    def __init__(self, settings: AnsibleSettings) -> None:
        # `make contract-patches` names a patch in the environment, as users do.
        patches = disabled_patches(os.environ)
        self._settings = replace(settings, disabled_patches=patches)
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
        for name in NAMES:
            launcher = open_launcher(name, self._settings)
            self._open[name] = await self._stack.enter_async_context(launcher)
        # Cold would take over silently, and be compared with itself.
        assert isinstance(self._open["warm"], WarmLauncher)

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
        records = [self.run(name, replace(project, **own(name)), place) for name in NAMES]
        first, second = map(view, records)
        found = differences((NAMES[0], NAMES[1]), first, second)
        assert not found, f"the launchers differ:\n{found}"
        if with_job:
            record = view(self.run(JOB, replace(project, **own(JOB)), place))
            found = differences((NAMES[0], JOB), without_place(first), without_place(record))
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
