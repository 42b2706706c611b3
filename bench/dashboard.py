"""`make dashboard-picture`: draw the panels of the dashboard into docs/dashboard.svg.

Prometheus scrapes an operator on its own control plane for some minutes; then the queries of the
dashboard are evaluated.
"""

from __future__ import annotations

import math
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import yaml
from rich.console import Console

from bench.api import CONFIG_MAP, THREE, WEB, Kind
from bench.docs_page import DOCS
from bench.environment import PROJECT, BenchEnvironment, Setup, Site, open_environment
from bench.errors import BenchError
from bench.panels import Line, Panel, svg
from bench.resources import names
from operator_runner.devcluster.errors import ClusterError
from tests.support.dashboard import filled, panels
from tests.support.prometheus import Prometheus

PICTURE = DOCS / "dashboard.svg"
_STEP = 2.0
"""Seconds between two points."""
_INTERVAL = "15s"
"""Window of rates; the scrape interval is one second."""
_NAMES = sorted(names(40))
_EDITED = 10
"""Number of resources that are edited continuously."""
_BROKEN = ("broken-1", "broken-2", "broken-3")
_BRISK = (THREE, THREE, CONFIG_MAP)
_EDITS = 1.0
"""Mean edits per second."""
_TICK = 0.05
_FIRST = 0.1
"""Share of the time before the first edit."""


@click.command()
@click.option("--minutes", default=4.0, show_default=True, help="How long the operator works.")
def main(*, minutes: float) -> None:
    """Run an operator that Prometheus scrapes, and draw the panels of the dashboard."""
    console = Console(highlight=False)
    try:
        with open_environment() as environment:
            drawn = picture(environment, minutes * 60, console)
    except (BenchError, ClusterError, AssertionError) as error:
        console.print(f"Error: {error}")
        sys.exit(1)
    PICTURE.write_text(drawn)
    console.print(f"Written: {PICTURE}")


def picture(environment: BenchEnvironment, seconds: float, console: Console) -> str:
    """Return the picture of an operator that runs for `seconds`."""
    site = _site(environment)
    prometheus = Prometheus(site.scratch / "prometheus", site.operator.metrics_address)
    try:
        site.start()
        prometheus.start()
        begin = time.time()
        _work(site, seconds, console)
        span = (begin, time.time())
        found = [_panel(prometheus, each, span) for each in panels()]
    finally:
        prometheus.stop()
        site.operator.kill()
    return svg(found, (0.0, span[1] - span[0]), "Operator: reconciles and runs")


def _site(environment: BenchEnvironment) -> Site:
    """Prepare an operator of two kinds."""
    scratch = environment.scratch / "dashboard"
    scratch.mkdir()
    flags = ("--leader-elect", "--leader-election-id=dashboard", "--max-runs=2")
    site = Site(environment.api, environment.cluster.kubeconfig, scratch, Setup(THREE, flags))
    project = site.operator.project
    shutil.copytree(PROJECT / "roles" / "web", project / "roles" / "web")
    watches = project / "watches.yaml"
    group, version = WEB.api_version.split("/")
    web = {"group": group, "version": version, "kind": WEB.name, "role": "web"}
    watches.write_text(yaml.safe_dump([*yaml.safe_load(watches.read_text()), web]))
    return site


def _work(site: Site, seconds: float, console: Console) -> None:
    """Edit resources and their objects continuously, with further actions at some moments."""
    begin, chance = time.monotonic(), random.Random(1)  # noqa: S311 (no secret)
    due = 0.0
    left = list(_moments(site))
    while (now := time.monotonic() - begin) < seconds:
        if left and now >= left[0][0] * seconds:
            _, what, do = left.pop(0)
            console.print(f"{now:4.0f} s  {what}")
            do()
        if now >= due and now > _FIRST * seconds:
            due = now + chance.expovariate(_EDITS)
            kind, name = chance.choice(_BRISK), chance.choice(_NAMES[:_EDITED])
            patch = {"data": {"size": "0"}} if kind == CONFIG_MAP else {"spec": {"size": now}}
            site.api.merge(kind, site.namespace, name, patch)
        time.sleep(_TICK)


Moment = tuple[float, str, Callable[[], None]]
"""Share of the time, description, and action."""


def _moments(site: Site) -> Iterator[Moment]:
    def create(kind: Kind, names: Sequence[str], **spec: object) -> None:
        for name in names:
            site.api.create(kind, site.namespace, name, spec)

    def repair() -> None:
        for name in _BROKEN:
            site.api.merge(THREE, site.namespace, name, {"spec": {"size": 1}})

    def kill_fork_server() -> None:
        for server in site.fork_servers():
            server.kill()

    yield 0.05, "ten resources", lambda: create(THREE, _NAMES[:10], size=1)
    yield 0.2, "thirty more", lambda: create(THREE, _NAMES[10:], size=1)
    yield 0.35, "resources of another kind", lambda: create(WEB, _NAMES[:10], replicas=1)
    # Without `size` the role has an undefined variable.
    yield 0.5, "three that fail", lambda: create(THREE, _BROKEN)
    yield 0.65, "the fork server is killed", kill_fork_server
    yield 0.8, "the three are repaired", repair


def _panel(prometheus: Prometheus, panel: dict[str, Any], span: tuple[float, float]) -> Panel:
    place = panel["gridPos"]
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    lines = [line for target in panel["targets"] for line in _lines(prometheus, target, span)]
    return Panel(
        title=panel["title"],
        unit=panel["fieldConfig"]["defaults"]["unit"],
        place=(place["x"], place["y"], place["w"], place["h"]),
        lines=tuple(lines),
        stacked=custom.get("stacking", {}).get("mode") == "normal",
        figure=panel["type"] == "stat",
    )


def _lines(
    prometheus: Prometheus, target: dict[str, str], span: tuple[float, float]
) -> Iterator[Line]:
    """Yield the lines of a target; times without a value have no point."""
    expression = filled(target["expr"], _INTERVAL)
    for series in prometheus.query_range(expression, *span, _STEP):
        points = [(at - span[0], float(value)) for at, value in series["values"]]
        drawn = tuple(point for point in points if math.isfinite(point[1]))
        if drawn:
            yield Line(_name(target["legendFormat"], series["metric"]), drawn)


def _name(legend: str, labels: dict[str, str]) -> str:
    """Fill in the labels that a legend names."""
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), legend)


if __name__ == "__main__":
    main()
