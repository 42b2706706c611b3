"""`make demo-down`: stop the operator, and remove everything that the demo created."""

from __future__ import annotations

import contextlib
import shutil
import sys

from rich.console import Console

from demo import background, kubectl, record
from demo.errors import DemoError
from demo.record import Record
from demo.up import CRD, SAMPLE
from operator_runner.devcluster import Cluster
from operator_runner.devcluster.errors import ClusterError

_NAMES = "--output=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}"


def main() -> int:
    """Remove everything; return the exit status. Missing objects are ignored."""
    console = Console(highlight=False)
    try:
        known = record.load()
        if known is not None:
            _down(console, known)
    except (DemoError, ClusterError) as error:
        console.print(str(error), style="bold red", markup=False, soft_wrap=True)
        return 1
    shutil.rmtree(record.FOLDER, ignore_errors=True)
    record.KUBECTL.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it may contain other files
        record.KUBECTL.parent.rmdir()
    console.print("The demo is down.")
    return 0


def _down(console: Console, known: Record) -> None:
    if not known.local:
        _leave_users_cluster(console, known)
    if known.operator is not None and background.find(known.operator) is not None:
        console.print(f"Ending the operator (process {known.operator.pid})")
        background.stop(known.operator)
    if known.local:
        console.print("Taking the cluster away")
        Cluster(record.cluster_name()).down()


def _leave_users_cluster(console: Console, known: Record) -> None:
    """Delete the sample, and the CRD if the demo created it and no other resource uses it."""
    if not record.KUBECTL.exists():
        return
    if known.sample_is_ours and kubectl.get("customresourcedefinition", CRD) is not None:
        console.print("Deleting the sample resource and its dependents")
        kubectl.run("delete", f"--filename={SAMPLE}", "--namespace=default", "--ignore-not-found")
    if not known.crd_is_ours or kubectl.get("customresourcedefinition", CRD) is None:
        return
    left = kubectl.run("get", CRD, "--all-namespaces", _NAMES).split()
    if left:
        console.print(
            f"The CRD {CRD} stays, because resources of others would be deleted with it:"
            f" {', '.join(left)}. Delete these and the CRD if you do not need them.",
            markup=False,
            soft_wrap=True,
        )
        return
    console.print("Deleting the CRD")
    kubectl.run("delete", "--ignore-not-found", "customresourcedefinition", CRD)


if __name__ == "__main__":
    sys.exit(main())
