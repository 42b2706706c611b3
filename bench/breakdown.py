"""Break down the time of an edit: queue, fork, set-up, tasks, processes, API requests."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.api import THREE
from bench.environment import BenchEnvironment, Setup, Site
from bench.picture import svg
from bench.process_timeline import descendants
from bench.reconcile_spans import Span, Traces
from bench.recorder import RequestRecorder

_TITLE = "From the edit of a field to the end of its reconcile: three Kubernetes tasks"


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Results of some edits."""

    table: Sequence[tuple[str, float]]
    """Indented names of spans, with the median of their milliseconds."""
    picture: str
    """SVG of the edit with the median duration."""

    def text(self) -> str:
        """Return the table."""
        return "\n".join(f"{name:<40}{length:8.1f} ms" for name, length in self.table)


def measure_breakdown(environment: BenchEnvironment, repetitions: int) -> Breakdown:
    """Edit a resource several times and record the time spans."""
    recorder = RequestRecorder(environment.api)
    kubeconfig = environment.scratch / "recorded.kubeconfig"
    with recorder.serve(kubeconfig):
        flags = ("--zap-log-level=debug",)
        with environment.site(Setup(THREE, flags, kubeconfig=kubeconfig)) as site:
            environment.api.create(THREE, site.namespace, "a", {"size": 0})
            site.wait_for_end(1)
            _edit(site, recorder, 1)
            found = [_edit(site, recorder, 2 + step).spans() for step in range(repetitions)]
    found.sort(key=lambda spans: max(span.end for span in spans if span.lane == "operator"))
    return Breakdown(_table(found), svg(found[len(found) // 2], _TITLE))


def _edit(site: Site, recorder: RequestRecorder, size: int) -> Traces:
    site.wait_for_quiet()
    time.sleep(0.5)
    ended, lines = site.ended(), len(site.operator.log().splitlines())
    recorder.requests.clear()
    with descendants(site.fork_servers()[0].pid) as lifetimes:
        edited = time.time()
        site.api.merge(THREE, site.namespace, "a", {"spec": {"size": size}})
        site.wait_for_end(ended + 1)
        site.wait_for_quiet()
        time.sleep(0.1)
    # The output of plays is between the lines.
    description = site.operator.log().splitlines()[lines:]
    log = [json.loads(line) for line in description if line.startswith("{")]
    (playbook,) = site.folders[0].rglob("project/main.json")
    prepared = playbook.stat().st_mtime
    return Traces(
        edited, prepared, log, _events(site), list(lifetimes.values()), list(recorder.requests)
    )


def _events(site: Site) -> list[dict[str, object]]:
    logs: list[Path] = [*site.folders[0].rglob("events.jsonl")]
    latest = max(logs, key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(line) for line in latest.read_text().splitlines()]


def _table(found: Sequence[Sequence[Span]]) -> list[tuple[str, float]]:
    """Return the medians of the operator's spans, with the play's spans within the run."""
    rows = []
    for name, length in _medians(found, "operator"):
        rows.append((name, length))
        if name == "run":
            rows.extend((f"  {inner}", took) for inner, took in _medians(found, "play"))
    rows.append(("all of it", median(_total(spans, "operator") for spans in found)))
    rows.append(("API requests, within the above", median(_total(s, "API") for s in found)))
    rows.extend((f"  {name}", length) for name, length in _medians(found, "API"))
    return rows


def _medians(found: Sequence[Sequence[Span]], lane: str) -> list[tuple[str, float]]:
    """Return the median of the total time of each name, in chronological order."""
    sums: dict[str, list[float]] = defaultdict(list)
    for spans in found:
        own: dict[str, float] = defaultdict(float)
        for span in sorted((s for s in spans if s.lane == lane), key=lambda s: s.begin):
            own[span.name] += span.length
        for name, length in own.items():
            sums[name].append(length)
    return [(name, median(lengths)) for name, lengths in sums.items()]


def _total(spans: Sequence[Span], lane: str) -> float:
    return sum(span.length for span in spans if span.lane == lane)
