"""Compare operator-runner with ansible-operator on a project of a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

import yaml

from bench.ansible_operator import running
from bench.api import Api, is_successful
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.errors import BenchError
from bench.figures import Goal, Row, number, ratio_row
from bench.objects import OF_CONTROLLERS, comparable, differences
from bench.pods import PodProxy, ready_pods
from bench.user_project import Edit, UserProject
from operator_runner.ansible.run_spec import COLLECTIONS

_CPU = Goal(None, 1 / 20)
_NONE = Goal()
_TIMEOUT_SECONDS = 3600.0
_POLL_SECONDS = 1.0
QUIET_SECONDS = 13.0
"""Longer than `--readiness-wait`, after which readiness that was held back starts a run."""
_TICK = Edit(("metadata", "annotations", "bench.example.com/tick"), None)
_COLLECTIONS = "ANSIBLE_COLLECTIONS_PATH"
_USUAL = "~/.ansible/collections:/usr/share/ansible/collections"
"""Ansible's default; operators of the bench have another home."""
Opponent = Callable[[BenchEnvironment, Setup], AbstractContextManager[Site]]
_RELEASED: Opponent = partial(running, as_released=True)
_WORK_DIR = "operator-runner-bench-work-"
_LISTED_FIELDS = 200
"""Characters of a line with fields that differ."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a change of the resource has led to, until no run follows."""

    wall: float
    """Seconds until the first run has succeeded."""
    cpu: float
    runs: int
    tasks: int
    """Tasks of all runs, skipped ones included; 0 of ansible-operator."""


@dataclass
class Side:
    """The resource of one operator."""

    site: Site
    project: UserProject
    quiet: float
    """Seconds without a run after which no other one follows."""
    works: dict[str, list[Work]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the resource."""
        return str(self.project.resource["metadata"]["name"])

    def create(self) -> None:
        """Create the resource, and measure until no run follows."""
        api, namespace = self.site.api, self.site.namespace
        for each in self.project.objects:
            api.create_object(namespace, each)

        def is_installed() -> bool:
            self.site.ended()
            _require_success(self.site)
            return is_successful(api.get(self.project.kind, namespace, self.name))

        self._measure(
            "installation",
            lambda: api.create_object(namespace, self.project.resource),
            is_installed,
        )

    def edit(self, edit: Edit) -> None:
        """Set a field, or restore its value if it was set before, and measure."""
        api, namespace, kind = self.site.api, self.site.namespace, self.project.kind
        first = edit.value_in(self.project.resource)
        if first == edit.value:
            raise BenchError(f"--edit {edit.text}: the resource has this value; write another one")
        is_set = edit.value_in(api.get(kind, namespace, self.name)) == edit.value
        value = first if is_set else edit.value
        self._patch_and_measure(f"edit {edit.text}", edit, value)
        if not is_set and edit.value_in(api.get(kind, namespace, self.name)) != value:
            raise BenchError(f"--edit {edit.text}: the CRD has no such field")

    def run_without_changes(self) -> None:
        """Change an annotation, which starts a run on both sides, and measure."""
        self._patch_and_measure("run that changes nothing", _TICK, str(time.time()))

    def _patch_and_measure(self, work: str, edit: Edit, value: object) -> None:
        site, ended = self.site, self.site.ended()

        def patch() -> None:
            site.api.merge(self.project.kind, site.namespace, self.name, edit.patch(value))

        def has_run() -> bool:
            done = site.ended() > ended
            _require_success(site)
            return done

        self._measure(work, patch, has_run)

    def _measure(self, work: str, change: Callable[[], None], done: Callable[[], bool]) -> None:
        site = self.site
        ended, tasks, cpu = site.ended(), _tasks(site), site.cpu_seconds()
        begun = time.monotonic()
        with site.log_in_timeouts():
            change()
            wait_until(done, work, _TIMEOUT_SECONDS, every=0.05)
        wall = time.monotonic() - begun
        used = _until_quiet(site, self.quiet)
        _require_success(site)
        found = Work(wall, used - cpu, site.ended() - ended, _tasks(site) - tasks)
        self.works.setdefault(work, []).append(found)


def compare_project(
    environment: BenchEnvironment,
    project: UserProject,
    edit: Edit | None,
    *,
    output: str = "",
    repetitions: int = 3,
    show: Callable[[str], None] = print,
    opponent: Opponent = _RELEASED,
    quiet: float = QUIET_SECONDS,
) -> Iterator[Row]:
    """Measure both operators in turns; `output` is what commands in Pods print.

    `show` gets notes. `opponent` starts the other operator. After `quiet` seconds without a run, no
    other one follows. Raises BenchError, also if a run fails.
    """
    environment.api.install(project.definitions)
    for line in missing_collections(project.folder, _collection_folders()):
        show(line)
    with ExitStack() as stack:
        sites = _start(environment, project, output, opponent, stack)
        for site in sites:
            # Ansible is loaded after the start.
            site.wait_for_quiet(quiet)
        sides = [Side(site, project, quiet) for site in sites]
        for side in sides:
            side.create()
        yield from _rows(sides, "installation")
        found = [_objects(side.site) for side in sides]
        for _ in range(repetitions):
            for side in sides:
                if edit is not None:
                    side.edit(edit)
                side.run_without_changes()
        for work in list(sides[0].works)[1:]:
            yield from _rows(sides, work)
        lines = differences(*found)
        total = len({*found[0], *found[1]})
        yield Row("objects that differ", f"{len(lines)} of {total}", "", len(lines), _NONE, number)
        for line in lines:
            show(line[:_LISTED_FIELDS])
    if edit is None:
        show("No edit was measured: name one, for example --edit spec.replicas=3.")


def _start(
    environment: BenchEnvironment,
    project: UserProject,
    output: str,
    opponent: Opponent,
    stack: ExitStack,
) -> Sequence[Site]:
    """Start both operators, each in its namespace, and what makes Pods ready."""
    kubeconfig = environment.scratch / "pods.kubeconfig"
    stack.enter_context(PodProxy(environment.api, output).serve(kubeconfig))
    setup = Setup(
        project.kind,
        kubeconfig=kubeconfig,
        environment={
            "ANSIBLE_GATHERING": "implicit",
            **project.environment,
            _COLLECTIONS: os.pathsep.join(_collection_folders()),
        },
        write_project=project.copy_to,
    )
    # Public roles take group and version from this path: it has as many directories as the default.
    work = stack.enter_context(tempfile.TemporaryDirectory(prefix=_WORK_DIR, dir="/tmp"))
    sites = (
        stack.enter_context(environment.site(replace(setup, flags=(f"--work-dir={work}/runner",)))),
        stack.enter_context(opponent(environment, setup)),
    )
    api = Api(environment.cluster.kubeconfig, environment.scratch / "pods-discovery.json")
    stack.enter_context(ready_pods(api, [site.namespace for site in sites]))
    return sites


def _until_quiet(site: Site, seconds: float) -> float:
    """Wait until no run follows for so long; return the CPU seconds at the end of the last run."""
    ended, used, since = -1, 0.0, time.monotonic()

    def is_quiet() -> bool:
        nonlocal ended, used, since
        now = site.ended()
        if now != ended or site.is_busy():
            ended, used, since = now, 0.0, time.monotonic()
        elif not used:
            used = site.cpu_seconds()
        return time.monotonic() - since > seconds

    with site.log_in_timeouts():
        wait_until(is_quiet, "no run follows", _TIMEOUT_SECONDS, every=_POLL_SECONDS)
    return used


def _objects(site: Site) -> dict[tuple[str, str], dict[str, object]]:
    return comparable(site.api.all_objects(site.namespace, OF_CONTROLLERS), site.namespace)


def _rows(sides: Sequence[Side], work: str) -> Iterator[Row]:
    ours, other = (side.works[work] for side in sides)
    until = "Successful" if work == "installation" else "its run has ended"
    times = [median(each.wall for each in side) for side in (ours, other)]
    yield ratio_row(f"{work}: time until {until}", times[0], times[1], _NONE)
    used = [fmean(each.cpu for each in side) for side in (ours, other)]
    yield ratio_row(f"{work}: CPU until quiet", used[0], used[1], _CPU)
    runs = [fmean(each.runs for each in side) for side in (ours, other)]
    yield Row(f"{work}: runs", number(runs[0]), number(runs[1]), runs[0], _NONE, number)
    tasks = fmean(each.tasks for each in ours)
    if tasks:
        yield Row(
            f"{work}: CPU of a task, {tasks / runs[0]:.0f} in a run",
            _milliseconds(used[0] / tasks),
            _milliseconds(used[1] / (tasks / runs[0] * runs[1])),
            used[0] / tasks,
            _NONE,
            _milliseconds,
        )


def _milliseconds(value: float) -> str:
    return f"{value * 1000:.1f} ms"


def _tasks(site: Site) -> int:
    """Return the number of tasks in all runs of operator-runner so far, skipped ones included."""
    counts = ("ok", "skipped", "ignored", "rescued")
    text = site.operator.log().splitlines()
    lines = (json.loads(each) for each in text if site.success.decode() in each and each[:1] == "{")
    return sum(int(line.get(name) or 0) for line in lines for name in counts)


def _require_success(site: Site) -> None:
    """Raise BenchError with task and message if a run of operator-runner has failed."""
    for line in site.failures:
        raise BenchError(f"operator-runner: task {line['task']!r} has failed: {line['error']}")


def _collection_folders() -> list[str]:
    folders = os.environ.get(_COLLECTIONS, _USUAL).split(os.pathsep)
    return [str(Path(folder).expanduser()) for folder in folders]


def missing_collections(folder: Path, searched: Sequence[str]) -> Iterator[str]:
    """Yield a line for each collection of requirements.yml that neither operator finds."""
    file = folder / "requirements.yml"
    if not file.exists():
        return
    places = [COLLECTIONS, *map(Path, (*searched, *sys.path))]
    for each in (yaml.safe_load(file.read_text()) or {}).get("collections") or ():
        name = str(each.get("name") if isinstance(each, dict) else each)
        path = Path("ansible_collections", *name.split("."))
        if name.count(".") == 1 and not any((place / path).is_dir() for place in places):
            yield (
                f"{file}: {name} is not installed; a role that needs it will fail: "
                f"ansible-galaxy collection install {name}"
            )


def commit(folder: Path) -> str:
    """Return the commit of a project; empty outside of git."""
    command = ["git", "-C", str(folder), "log", "-1", "--format=%h"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()
