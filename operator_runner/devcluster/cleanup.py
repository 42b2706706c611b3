"""Remove a cluster completely in any state: running, crashed, partly started."""

from __future__ import annotations

import shutil
import time

from operator_runner.devcluster import cgroups, links, process
from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.locations import Home

_SECONDS = 30


def clean(home: Home) -> None:
    """End every process of the cluster and remove its link, routes and cgroups.

    Nothing here relies on the stored state: processes are found by their mark, link and cgroups
    by names that are derived from the home. Files are kept: see `remove`.
    """
    deadline = time.monotonic() + _SECONDS
    # Once more after each round: a program may have been starting another one.
    while remaining := process.of_cluster(home.path):
        if time.monotonic() > deadline:
            pids = ", ".join(str(one.pid) for one in remaining)
            raise ClusterError(
                f"the processes {pids} of the cluster are started again after they are killed"
            )
        process.kill(remaining)
    links.remove(home.token)
    cgroups.remove(home.token)


def forget(home: Home) -> None:
    """Remove all files but the logs, so that the next start creates a new cluster."""
    for path in (home.state, home.kubeconfig):
        path.unlink(missing_ok=True)
    nodes = (home.node, *home.path.glob("node-*"))
    written = (home.etcd, home.volumes, home.catalogs.parent, *nodes)
    for folder in (home.bin, home.tools, home.kubectl_cache, home.pki, *written):
        if folder.exists():
            shutil.rmtree(folder)


def remove(home: Home) -> None:
    """Remove every file of the cluster."""
    if home.path.exists():
        shutil.rmtree(home.path)
