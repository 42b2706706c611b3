"""Compare an edit with an operator in Go, whose source is in `native/`."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.api import WEB
from bench.environment import BenchEnvironment, Setup
from bench.figures import Goal, Row, times
from bench.go_build import build_go
from bench.latency import edit_and_wait, settle

_SOURCE = Path(__file__).parent / "native"
_GO = (1, 24)


def native(environment: BenchEnvironment, repetitions: int) -> Iterator[Row]:
    """Edit a resource of the role whose first task writes the Deployment, and one in Go."""
    program = build_go(_SOURCE, ".", _GO)
    namespace = f"bench-{secrets.token_hex(4)}"
    environment.api.make_namespace(namespace)
    with (
        environment.site(Setup("warm", WEB)) as site,
        _running(program, environment.cluster.kubeconfig, namespace),
    ):
        namespaces = (site.namespace, namespace)
        for each in namespaces:
            environment.api.create(WEB, each, "a", {"replicas": 1})
        site.wait_for_end(1)
        # The first edits wait for the creation of both Deployments.
        pairs = []
        for step in range(repetitions + 1):
            settle(site)
            pairs.append([edit_and_wait(site.api, WEB, each, 2 - step % 2) for each in namespaces])
    ours, other = (median(seconds) for seconds in zip(*pairs[1:], strict=True))
    yield Row(
        "edit to changed Deployment, beside an operator in Go",
        f"{ours:.3f} s",
        f"{other:.3f} s",
        ours / other,
        Goal(None, 5),
        times,
    )


@contextmanager
def _running(program: Path, kubeconfig: Path, namespace: str) -> Iterator[None]:
    """Run the operator in Go until the block ends."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "WATCH_NAMESPACE": namespace}
    process = subprocess.Popen([program], env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
