"""`make demo`: cluster, CRD, operator, sample resource; then what happened and what to try."""

from __future__ import annotations

import dataclasses
import sys
import time

from rich.console import Console

from demo import background, kubectl, record, result, target
from demo.background import Ports
from demo.errors import DemoError
from demo.fetch import command_for
from demo.follow import follow_run
from demo.record import Record
from demo.result import Sample
from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.supervision import ESTABLISHED

CRD = "nginxoperators.operator.example.com"
SAMPLE = record.ROOT / "config" / "samples" / "operator_v1alpha2_nginxoperator.yaml"
_RUN_SECONDS = 180.0


def main(where: str) -> int:
    """Start everything; return the exit status. `where` is `local` or `current`."""
    console = Console(highlight=False)
    begin = time.monotonic()
    try:
        _up(console, local=_is_local(where))
    except (DemoError, ClusterError) as error:
        console.print("\nThe demo failed:", style="bold red")
        console.print(str(error), markup=False, soft_wrap=True)
        console.print("Run `make demo-down` to remove what was started.")
        return 1
    except KeyboardInterrupt:
        console.print("\nInterrupted; run `make demo-down` to remove what was started.")
        return 130
    console.print(f"\nUp after {time.monotonic() - begin:.0f} s.", style="dim")
    return 0


def _up(console: Console, *, local: bool) -> None:
    known = _stop_former_operator(Record(local=local))
    here = target.local(console) if local else target.current(console)
    known = _apply_crd(known)
    _refuse_foreign_resources(known)
    console.rule("Operator", align="left")
    ports = Ports.free()
    process = background.start(here.kubeconfig, here.image, ports)
    known = record.save(dataclasses.replace(known, operator=process))
    background.wait_until_ready(process, ports)
    console.print(f"Ready, as process {process.pid}; log: .demo/operator.log")
    console.rule("Sample resource", align="left")
    sample = _apply_sample(console, known)
    if not follow_run(console, record.LOG, str(sample), process, _RUN_SECONDS):
        result.show_conditions(console, sample)
        hint = "repair the task that is named above; the operator runs a saved role at once"
        raise DemoError("The run failed", hint=hint, log=record.LOG)
    console.rule("Result", align="left")
    result.show_deployment(console, sample)
    fetch = result.show_http(console, here, sample)
    result.wait_available(sample)
    result.show_conditions(console, sample)
    _print_next_steps(console, sample, ports, fetch)


def _is_local(where: str) -> bool:
    if where not in {"local", "current"}:
        raise DemoError(f"CLUSTER={where}", hint="write CLUSTER=local or CLUSTER=current")
    return where == "local"


def _stop_former_operator(desired: Record) -> Record:
    """Stop the operator of an earlier `make demo`; return what else is known of that one."""
    former = record.load()
    if former is None:
        return record.save(desired)
    if former.local != desired.local:
        where = "a local cluster" if former.local else "a cluster of yours"
        raise DemoError(f"The demo is up on {where} already", hint="make demo-down")
    if former.operator is not None:
        background.stop(former.operator)
    return record.save(dataclasses.replace(former, operator=None))


def _apply_crd(known: Record) -> Record:
    """Apply the CRD, and record whether it is new: only then `demo-down` may remove it."""
    is_new = kubectl.get("customresourcedefinition", CRD) is None
    known = record.save(dataclasses.replace(known, crd_is_ours=known.crd_is_ours or is_new))
    kubectl.run("apply", "--filename", str(record.ROOT / "crds"))
    kubectl.run("wait", ESTABLISHED, f"crd/{CRD}", "--timeout=120s")
    return known


def _refuse_foreign_resources(known: Record) -> None:
    """Stop where the user's cluster has such resources already: the operator would change them."""
    if known.local or known.sample_is_ours:
        return
    there = kubectl.run("get", "nginxoperators", "--all-namespaces", "--output=name").split()
    if there:
        raise DemoError(
            f"Your cluster has resources of this kind already: {', '.join(there)}",
            hint="delete them, or take another cluster; the demo's operator would work on them",
        )


def _apply_sample(console: Console, known: Record) -> Sample:
    """Make the sample resource; one of an earlier `make demo` stays as the user left it."""
    there = f"--filename={SAMPLE}", "--namespace=default"
    record.save(dataclasses.replace(known, sample_is_ours=True))
    body = kubectl.get(*there)
    if body is None:
        console.print(f"bin/kubectl apply -f {SAMPLE.relative_to(record.ROOT)}", style="dim")
        kubectl.run("apply", *there)
        body = kubectl.wait_for("The sample resource exists", lambda: kubectl.get(*there), 10)
    else:
        console.print("It exists already, and is not changed", style="dim")
    return Sample(body["metadata"]["namespace"], body["metadata"]["name"])


def _print_next_steps(console: Console, sample: Sample, ports: Ports, fetch: str) -> None:
    resource = f"nginxoperator {sample.name}"
    metrics = command_for(f"http://localhost:{ports.metrics}/metrics")
    probe = command_for(f"http://localhost:{ports.probes}/readyz?verbose")
    three = '{"spec":{"replicas":3}}'
    hints = (
        ("Follow the operator", ["tail -f .demo/operator.log"]),
        ("Fetch the page", [fetch]),
        (
            "Change the resource",
            [
                f"bin/kubectl edit {resource}",
                f"bin/kubectl patch {resource} --type=merge --patch='{three}'",
                "bin/kubectl get pods",
                f"bin/kubectl describe {resource}",
            ],
        ),
        (
            "Delete the Deployment: the operator creates it again",
            [f"bin/kubectl delete deployment {sample.name}", "bin/kubectl get deployments"],
        ),
        ("Edit a task: a saved role runs at once", ["${EDITOR:-vi} roles/nginx/tasks/main.yml"]),
        ("Look at metrics and probes", [f"{metrics} | grep ^reconciles_total", probe]),
        ("Start the operator again", ["make demo"]),
        ("Stop", ["make demo-down"]),
    )
    console.rule("Try next", align="left")
    for title, commands in hints:
        console.print(f"{title}:", style="bold")
        for command in commands:
            console.print(f"    {command}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
