"""`python -m operator_runner.devcluster`: the `cluster` commands by themselves."""

from __future__ import annotations

from operator_runner.devcluster.commands import cluster

cluster(prog_name="cluster")
