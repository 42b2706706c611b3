"""`make soak`: random edits and faults; then all resources must converge and nothing may leak.

`python -m bench.soak --minutes 30 --seed 1` repeats a sequence of random choices.
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

from bench import accounting, convergence, docs_page
from bench.api import THREE
from bench.environment import BenchEnvironment, Setup, Site, open_environment, wait_until
from bench.errors import BenchError
from bench.faults import Faults
from bench.figures import mebibytes
from bench.footprint import ALWAYS_LOADED, Footprint
from bench.resources import names
from operator_runner.devcluster.errors import ClusterError

_CONVERGENCE_SECONDS = 400.0
"""Time to converge without faults; the backoff of retries is that long."""
_REPORT_SECONDS = 30.0
"""Interval of progress lines."""
_LAST_KILL_SHARE = 2 / 3
"""Share of the time after which the operator is not killed, so that its memory is comparable."""
_EDIT_WEIGHTS = {"edit": 75, "delete": 7, "recreate": 7}
_INTERNAL_ERROR = "internal error"
_OPERATOR = "kill operator"
_FAULT_WEIGHTS = {"kill run": 7, "kill fork server": 2, _OPERATOR: 1, "stall API server": 1}
"""Weights of the faults; all weights add up to a hundred."""
_FORCED_FAULT_SHARE = 0.3
"""Probability that an action is a fault that has not occurred yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration, number of resources, and random seed."""

    minutes: float
    resources: int
    seed: int
    pause: float = 1.0
    """Mean seconds between two actions."""


@dataclass(slots=True)
class Soak:
    """A running soak."""

    environment: BenchEnvironment
    site: Site
    plan: Plan
    console: Console
    done: Counter[str] = field(default_factory=Counter)
    _expected: dict[str, int] = field(default_factory=dict)
    _sizes: int = 0
    _reported: int = 0
    """Number of internal errors that have been printed."""
    _chance: random.Random = field(init=False)
    _actions: dict[str, Callable[[], bool]] = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.plan.seed)  # noqa: S311 (no secret)
        faults = Faults(self.site, self.environment.cluster, self._chance)
        self._actions = {
            "edit": self._edit,
            "delete": self._delete,
            "recreate": self._recreate,
            "kill run": lambda: self._edit() and faults.kill_run(),
            "kill fork server": faults.kill_fork_server,
            _OPERATOR: faults.kill_operator,
            "stall API server": faults.stall_api,
        }

    def run(self) -> tuple[Footprint, Footprint]:
        """Return the footprints before and after. Raises BenchError if a check fails."""
        before = self._fill()
        self._report("begin", before)
        self._inject_faults()
        # First without the deleted resources, then with all of them, as at the start.
        self._wait_for_convergence()
        after = self._fill()
        self._report("end", after)
        self._check(before, after)
        return before, after

    def _fill(self) -> Footprint:
        """Create missing resources, and run each until its artifacts are rotated."""
        for name in sorted(names(self.plan.resources) - set(self._expected)):
            self._create(name)
        self._wait_for_convergence()
        for _ in range(self.site.setup.artifacts):
            for name in self._expected:
                self._resize(name)
            self._wait_for_convergence()
        return Footprint.measure(self.site)

    def _inject_faults(self) -> None:
        begin = description = time.monotonic()
        length = self.plan.minutes * 60
        # Each fault occurs at least once, however slow the machine; the last of the list is first.
        due = self._chance.sample(sorted(_FAULT_WEIGHTS), len(_FAULT_WEIGHTS))
        due.sort(key=_OPERATOR.__eq__)
        while (passed := time.monotonic() - begin) < length or due:
            name = self._choose(due)
            spared = name == _OPERATOR and name not in due and passed > length * _LAST_KILL_SHARE
            if not spared and self._actions[name]():
                self.done[name] += 1
                due = [fault for fault in due if fault != name]
            if time.monotonic() - description > _REPORT_SECONDS:
                description = time.monotonic()
                self._report(f"{passed / 60:.1f} min")
            time.sleep(self._chance.expovariate(1 / self.plan.pause))

    def _choose(self, due: list[str]) -> str:
        if due and self._chance.random() < _FORCED_FAULT_SHARE:
            return due[-1]
        weights = {**_EDIT_WEIGHTS, **_FAULT_WEIGHTS}
        (name,) = self._chance.choices([*weights], [*weights.values()])
        return name

    def _edit(self) -> bool:
        if not self._expected:
            return False
        self._resize(self._chance.choice(sorted(self._expected)))
        return True

    def _resize(self, name: str) -> None:
        self._sizes += 1
        self.site.api.merge(THREE, self.site.namespace, name, {"spec": {"size": self._sizes}})
        self._expected[name] = self._sizes

    def _delete(self) -> bool:
        if not self._expected:
            return False
        name = self._chance.choice(sorted(self._expected))
        self.site.api.delete(THREE, self.site.namespace, name)
        del self._expected[name]
        return True

    def _recreate(self) -> bool:
        missing = sorted(names(self.plan.resources) - set(self._expected))
        if missing:
            self._create(self._chance.choice(missing))
        return bool(missing)

    def _create(self, name: str) -> None:
        self._sizes += 1
        self.site.api.create(THREE, self.site.namespace, name, {"size": self._sizes})
        self._expected[name] = self._sizes

    def _wait_for_convergence(self) -> None:
        try:
            wait_until(
                lambda: not convergence.violations(self.site, self._expected),
                "all resources converged",
                _CONVERGENCE_SECONDS,
                every=1,
            )
        except BenchError as error:
            found = convergence.violations(self.site, self._expected)
            raise BenchError(f"{error}: {'; '.join(found[:10])}") from None

    def _check(self, before: Footprint, after: Footprint) -> None:
        strays = set(self.site.processes()) - set(self.site.family())
        if strays:
            raise BenchError(f"leaked processes: {sorted(map(str, strays))}")
        if errors := self._internal_errors():
            raise BenchError(f"{len(errors)} internal errors; the first: {errors[0]}")
        after.require_flat(before)

    def _internal_errors(self) -> list[str]:
        return [
            line
            for line in self.site.operator.log().splitlines()
            if _INTERNAL_ERROR in line.lower()
        ]

    def _report(self, when: str, taken: Footprint | None = None) -> None:
        done = ", ".join(f"{count} {name}" for name, count in self.done.items())
        family = self.site.family()
        operator, total = (mebibytes(accounting.memory(part)) for part in (family[:1], family))
        ended = f"{self.site.ended()} runs ended well"
        text = f"{when}: {ended}, {total}, the operator {operator}; {done or 'nothing yet'}"
        self.console.print(text if taken is None else f"{text}; {taken}", markup=False)
        for line in self._internal_errors()[self._reported :]:
            self.console.print(line, markup=False)
            self._reported += 1


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a successful soak."""

    done: Counter[str]
    runs: int
    """Runs that ended well."""
    before: Footprint
    after: Footprint

    def table(self) -> str:
        """Return actions and measurements as a Markdown table."""
        rows = [(name, str(count)) for name, count in sorted(self.done.items())]
        rows += [("runs that ended well", str(self.runs))]
        rows += [("before", str(self.before)), ("after", str(self.after))]
        return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)])


def soak(environment: BenchEnvironment, plan: Plan, console: Console) -> Result:
    """Run a soak. Raises BenchError if a resource does not converge or the footprint grows."""
    with environment.site(Setup(THREE, ALWAYS_LOADED, artifacts=2)) as site:
        running = Soak(environment, site, plan, console)
        before, after = running.run()
        return Result(running.done, site.ended(), before, after)


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="Duration of the faults.")
@click.option("--resources", default=50, show_default=True, help="Number of resources.")
@click.option("--seed", default=None, type=int, help="Random seed.  [default: random]")
@click.option("--keep", is_flag=True, help="Write the result into docs/performance.md.")
def main(*, minutes: float, resources: int, seed: int | None, keep: bool) -> None:
    """Edit, delete, create and kill at random; exit with 1 if a check fails."""
    console = Console(highlight=False, soft_wrap=True)
    circumstances = docs_page.circumstances()
    plan = Plan(minutes, resources, random.randrange(10**6) if seed is None else seed)  # noqa: S311
    description = f"{plan.resources} resources, {plan.minutes:g} minutes, seed {plan.seed}"
    console.print(description)
    try:
        with open_environment() as environment:
            result = soak(environment, plan, console)
    except (BenchError, ClusterError) as error:
        console.print(f"The soak failed: {error}", style="bold red", markup=False)
        sys.exit(1)
    console.print("All resources converged; no growth, no leaked processes")
    console.print(result.table(), markup=False)
    if keep:
        docs_page.write_part(
            "soak", f"{description}; {circumstances} at the start.\n\n{result.table()}"
        )


if __name__ == "__main__":
    main()
