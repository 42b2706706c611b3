"""`make soak`: random edits and faults for a while; then everything has to be true and flat.

`python -m bench.soak --minutes 30 --seed 1` repeats a run as far as chance goes.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import click
from rich.console import Console

from bench import accounting, convergence, document
from bench.api import THREE
from bench.burst import names
from bench.environment import Setup, Site, World, open_world, wait_until
from bench.errors import BenchError
from bench.faults import Faults
from bench.figures import mebibytes
from bench.footprint import Taken
from operator_runner.devcluster.errors import ClusterError

_CALM = 400.0
"""Seconds for everything to become true once nobody interferes; retries back off that long."""
_TOLD = 30.0
"""Seconds between two lines of progress."""
_SPARED = 2 / 3
"""From this share of the time on the operator lives, so that its memory can be judged."""
_WORK = {"edit": 75, "delete": 7, "recreate": 7}
_MISTAKE = "internal error"
_OPERATOR = "kill operator"
_FAULTS = {"kill run": 7, "kill fork server": 2, _OPERATOR: 1, "stall API server": 1}
"""How often each of them, of a hundred actions."""
_DUE = 0.3
"""Share of the first actions that are faults which have not been yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, how many, and what chance begins with."""

    minutes: float
    resources: int
    seed: int
    pause: float = 1.0
    """Mean seconds between two actions."""


@dataclass(slots=True)
class Soak:
    """A soak under way."""

    world: World
    site: Site
    plan: Plan
    console: Console
    done: Counter[str] = field(default_factory=Counter)
    _wanted: dict[str, int] = field(default_factory=dict)
    _sizes: int = 0
    _told: int = 0
    """Mistakes of the operator that have been told."""
    _chance: random.Random = field(init=False)
    _actions: dict[str, Callable[[], bool]] = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.plan.seed)  # noqa: S311 (no secret)
        faults = Faults(self.site, self.world.cluster, self._chance)
        self._actions = {
            "edit": self._edit,
            "delete": self._delete,
            "recreate": self._recreate,
            "kill run": lambda: self._edit() and faults.kill_run(),
            "kill fork server": faults.kill_fork_server,
            _OPERATOR: faults.kill_operator,
            "stall API server": faults.stall_api,
        }

    def run(self) -> tuple[Taken, Taken]:
        """Return what the operator took before and after. Raises BenchError for any untruth."""
        before = self._fill()
        self._tell("begin", before)
        self._trouble()
        # With the deleted ones gone; then with all of them there again, as in the beginning.
        self._await_truth()
        after = self._fill()
        self._tell("end", after)
        self._judge(before, after)
        return before, after

    def _fill(self) -> Taken:
        """Have all resources there, each with as many artifacts as are kept of it."""
        for name in sorted(names(self.plan.resources) - set(self._wanted)):
            self._create(name)
        self._await_truth()
        for _ in range(self.site.setup.artifacts):
            for name in self._wanted:
                self._resize(name)
            self._await_truth()
        return Taken.by(self.site)

    def _trouble(self) -> None:
        begin = told = time.monotonic()
        length = self.plan.minutes * 60
        # However short the time, each of them happens once; the last one here is the first.
        due = self._chance.sample(sorted(_FAULTS), len(_FAULTS))
        due.sort(key=_OPERATOR.__eq__)
        while (passed := time.monotonic() - begin) < length:
            name = self._choose(due)
            spared = name == _OPERATOR and passed > length * _SPARED
            if not spared and self._actions[name]():
                self.done[name] += 1
            if time.monotonic() - told > _TOLD:
                told = time.monotonic()
                self._tell(f"{passed / 60:.1f} min")
            time.sleep(self._chance.expovariate(1 / self.plan.pause))

    def _choose(self, due: list[str]) -> str:
        if due and self._chance.random() < _DUE:
            return due.pop()
        weights = {**_WORK, **_FAULTS}
        (name,) = self._chance.choices([*weights], [*weights.values()])
        return name

    def _edit(self) -> bool:
        if not self._wanted:
            return False
        self._resize(self._chance.choice(sorted(self._wanted)))
        return True

    def _resize(self, name: str) -> None:
        self._sizes += 1
        self.site.api.merge(THREE, self.site.namespace, name, {"spec": {"size": self._sizes}})
        self._wanted[name] = self._sizes

    def _delete(self) -> bool:
        if not self._wanted:
            return False
        name = self._chance.choice(sorted(self._wanted))
        self.site.api.delete(THREE, self.site.namespace, name)
        del self._wanted[name]
        return True

    def _recreate(self) -> bool:
        missing = sorted(names(self.plan.resources) - set(self._wanted))
        if missing:
            self._create(self._chance.choice(missing))
        return bool(missing)

    def _create(self, name: str) -> None:
        self._sizes += 1
        self.site.api.create(THREE, self.site.namespace, name, {"size": self._sizes})
        self._wanted[name] = self._sizes

    def _await_truth(self) -> None:
        try:
            wait_until(
                lambda: not convergence.lies(self.site, self._wanted), "all is true", _CALM, every=1
            )
        except BenchError as error:
            found = convergence.lies(self.site, self._wanted)
            raise BenchError(f"{error}: {'; '.join(found[:10])}") from None

    def _judge(self, before: Taken, after: Taken) -> None:
        strays = set(self.site.processes()) - set(self.site.family())
        if strays:
            raise BenchError(f"processes were left behind: {sorted(map(str, strays))}")
        if mistakes := self._mistakes():
            raise BenchError(f"{len(mistakes)} mistakes; the first: {mistakes[0]}")
        after.require_flat(before)

    def _mistakes(self) -> list[str]:
        return [line for line in self.site.operator.log().splitlines() if _MISTAKE in line.lower()]

    def _tell(self, when: str, taken: Taken | None = None) -> None:
        done = ", ".join(f"{count} {name}" for name, count in self.done.items())
        family = self.site.family()
        operator, total = (mebibytes(accounting.memory(part)) for part in (family[:1], family))
        ended = f"{self.site.ended()} runs ended well"
        text = f"{when}: {ended}, {total}, the operator {operator}; {done or 'nothing yet'}"
        self.console.print(text if taken is None else f"{text}; {taken}", markup=False)
        for line in self._mistakes()[self._told :]:
            self.console.print(line, markup=False)
            self._told += 1


@dataclass(frozen=True, slots=True)
class Result:
    """How a soak went that did not fail."""

    done: Counter[str]
    runs: int
    """Runs that ended well."""
    before: Taken
    after: Taken

    def table(self) -> str:
        """Return what was done and what was found, in Markdown."""
        rows = [(name, str(count)) for name, count in sorted(self.done.items())]
        rows += [("runs that ended well", str(self.runs))]
        rows += [("before", str(self.before)), ("after", str(self.after))]
        return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)])


def soak(world: World, plan: Plan, console: Console) -> Result:
    """Run a soak. Raises BenchError if anything is untrue or grows."""
    with world.site(Setup("warm", THREE, artifacts=2)) as site:
        running = Soak(world, site, plan, console)
        before, after = running.run()
        return Result(running.done, site.ended(), before, after)


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="How long there is trouble.")
@click.option("--resources", default=50, show_default=True)
@click.option("--seed", default=None, type=int, help="What chance begins with; else another one.")
@click.option("--keep", is_flag=True, help="Write the result into docs/performance.md.")
def main(*, minutes: float, resources: int, seed: int | None, keep: bool) -> None:
    """Edit, delete, create and kill at random; end with 1 unless all is true and flat at last."""
    console = Console(highlight=False, soft_wrap=True)
    begun = document.circumstances()
    plan = Plan(minutes, resources, random.randrange(10**6) if seed is None else seed)  # noqa: S311
    told = f"{plan.resources} resources, {plan.minutes:g} minutes, seed {plan.seed}"
    console.print(told)
    try:
        with open_world() as world:
            result = soak(world, plan, console)
    except (BenchError, ClusterError) as error:
        console.print(f"The soak failed: {error}", style="bold red", markup=False)
        sys.exit(1)
    console.print("Every resource is Successful and true, nothing has grown, nobody is left behind")
    console.print(result.table(), markup=False)
    if keep:
        document.write_part("soak", f"{told}; {begun} at the begin.\n\n{result.table()}")


if __name__ == "__main__":
    main()
