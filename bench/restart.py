"""Measure a restart with unchanged resources, with and without `skipUnchanged`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.api import THREE, is_successful
from bench.burst import names
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.errors import BenchError
from bench.figures import Cost, Goal, Row, compared, hundredths

_TIMEOUT_SECONDS = 1800.0
_SKIPPED = "operator_runner_runs_skipped_total"
_RECORDS = (
    "--keep-runs",
    "--leader-elect",
    "--leader-election-id=bench-restart",
    "--leader-election-namespace=default",
)
"""Flags with which records of runs survive a restart."""


_FEW, _FEW_SECONDS = 51, 2.0
_MANY_SECONDS = 10.0
"""Target for up to 1,000 resources."""
_POLL_SECONDS = 0.1


def restart(environment: BenchEnvironment, many: int) -> Iterator[Row]:
    """Restart an operator with 51 resources, then with `many` as well.

    A second operator runs the role for each of the 51 resources, as without `skipUnchanged`.
    """
    with environment.site(Setup("warm", THREE)) as site:
        _create(site, _FEW)
        other = _restart(site, _FEW, skips=False)
    keys = {"skipUnchanged": True}
    # One run's artifacts are kept, so that 1,000 resources need few files.
    with environment.site(Setup("warm", THREE, _RECORDS, artifacts=1, keys=keys)) as site:
        _create(site, _FEW)
        # The first run of a resource writes objects; the second one is known to change nothing.
        _restart(site, _FEW, skips=False)
        ours = _restart(site, _FEW, skips=True)
        work = f"restart with {_FEW} unchanged resources"
        yield from compared(work, ours, other, Goal(limit=1 / 2, target=1 / 6))
        yield _row(work, ours, _FEW_SECONDS)
        _create(site, many, _FEW)
        _restart(site, many, skips=False)
        cost = _restart(site, many, skips=True)
        yield _row(f"restart with {many} unchanged resources", cost, _MANY_SECONDS)


def _create(site: Site, count: int, existing: int = 0) -> None:
    """Create the resources beside `existing` ones, and wait until all are Successful."""
    for name in sorted(names(count) - names(existing)):
        site.api.create(THREE, site.namespace, name, {"size": 1})
    site.api.until(THREE, site.namespace, names(count), is_successful, _TIMEOUT_SECONDS)


def _restart(site: Site, count: int, *, skips: bool) -> Cost:
    """Restart the operator; return the cost until all resources were reconciled or skipped.

    Raises BenchError if one was reconciled that should be skipped.
    """
    site.wait_for_quiet()
    if status := site.operator.terminate():
        raise BenchError(f"the operator ended with status {status}")
    before, begun = site.ended(), time.monotonic()
    site.start(wait=False)
    what = f"{count} resources after a restart"

    def is_over() -> bool:
        return site.ended() - before + _skipped(site) >= count

    wait_until(is_over, what, _TIMEOUT_SECONDS, _POLL_SECONDS)
    wall = time.monotonic() - begun
    site.wait_for_quiet()
    if skips and (ran := site.ended() - before):
        raise BenchError(f"{ran} of {count} unchanged resources were reconciled")
    return Cost(wall, site.cpu_seconds())


def _skipped(site: Site) -> int:
    return round(site.operator.metric(_SKIPPED))


def _row(work: str, cost: Cost, target: float) -> Row:
    shown = hundredths(cost.wall)
    return Row(f"{work}, in seconds", shown, "", cost.wall, Goal(None, target), hundredths)
