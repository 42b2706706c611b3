"""`make olm-demo-down`: remove the cluster of `make olm-demo` with everything in it."""

from __future__ import annotations

import sys

from rich.console import Console

from demo.olm import cluster_name
from operator_runner.devcluster import Cluster
from operator_runner.devcluster.errors import ClusterError


def main() -> int:
    """Remove the cluster; return the exit status. Missing objects are ignored."""
    console = Console(highlight=False)
    try:
        Cluster(cluster_name()).down()
    except ClusterError as error:
        console.print(str(error), style="bold red", markup=False, soft_wrap=True)
        return 1
    console.print("The demo is down.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
