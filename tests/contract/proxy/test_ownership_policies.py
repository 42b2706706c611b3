"""Writes of a run to objects of others, by the `ownership` of its watch, on a real API server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from operator_runner.core.model import Json, Ownership
from tests.support.kubectl import Kubectl

from .conftest import WATCH, Recorder, Run, Start, config_map, owners

REFUSE = replace(WATCH, ownership=Ownership.REFUSE)
ADOPT = replace(WATCH, ownership=Ownership.ADOPT)


async def refused(run: Run, *args: str, input_: str = "") -> str:
    """Run kubectl, which must fail; return its errors."""
    status, out, err = await run.done(*run.command(*args), input_=input_)
    assert status == 1, out
    return err


WRITES = {
    "replace": ("replace", "--filename=-"),
    "server-side apply": ("apply", "--server-side", "--force-conflicts", "--filename=-"),
    "apply": ("apply", "--filename=-"),
    "merge patch": ("patch", "configmap", "NAME", "--type=merge", '--patch={"data": {"a": "2"}}'),
    "strategic patch": ("patch", "configmap", "NAME", '--patch={"data": {"a": "2"}}'),
    "json patch": (
        *("patch", "configmap", "NAME", "--type=json"),
        '--patch=[{"op": "add", "path": "/data", "value": {"a": "2"}}]',
    ),
    "delete": ("delete", "configmap", "NAME"),
}


def command(write: str, name: str) -> tuple[tuple[str, ...], str]:
    """Return a write as arguments of kubectl, and its input."""
    args = tuple(name if arg == "NAME" else arg for arg in WRITES[write])
    return args, json.dumps(config_map(name, a="2"))


def apply_owned_by_account(kubectl: Kubectl, body: Json) -> None:
    """Apply an object that the ServiceAccount `default` owns."""
    kubectl.wait_for_account()
    account = json.loads(kubectl("get", "serviceaccount", "default", "--output=json"))
    reference = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "default"}
    body["metadata"]["ownerReferences"] = [{**reference, "uid": account["metadata"]["uid"]}]
    kubectl.apply(body)


async def test_writes_of_foreign_objects_are_refused(start: Start, kubectl: Kubectl) -> None:
    """No write changes an object without the owner; the message names object, owner and hint."""
    run = start(REFUSE)
    kubectl("create", "configmap", "nobodys", "--from-literal=a=1")
    before = await run.get("configmap", "nobodys")

    writes = (command(write, "nobodys") for write in WRITES)
    errors = await asyncio.gather(*(refused(run, *args, input_=text) for args, text in writes))

    expected = (
        f"ConfigMap {kubectl.namespace}/nobodys does not belong to ConfigMap"
        f" {kubectl.namespace}/owner, it has no owner; rename one of the two, or set"
        " `ownership: adopt` or `ownership: ignore` for ConfigMap in watches.yaml"
    )
    assert [error for error in errors if expected not in error] == []
    assert await run.get("configmap", "nobodys") == before


async def test_owned_objects_are_written(start: Start) -> None:
    """Each kind of write to an owned object passes, and the owner stays."""
    run = start(REFUSE)
    for write in WRITES:
        await run.kubectl("create", "configmap", "mine", "--from-literal=b=1")
        args, text = command(write, "mine")
        await run.kubectl(*args, input_=text)
        if write != "delete":
            body = await run.get("configmap", "mine")
            assert (owners(body), body["data"]["a"]) == (["owner"], "2"), write
            await run.kubectl("delete", "configmap", "mine")


async def test_missing_objects_are_created_or_not_found(start: Start) -> None:
    """Creation needs no permission, and a write to nothing gets the API server's answer."""
    run = start(REFUSE)
    for write in WRITES:
        args, text = command(write, "made")
        if "apply" in write:
            await run.kubectl(*args, input_=text)
            assert owners(await run.get("configmap", "made")) == ["owner"], write
            await run.kubectl("delete", "configmap", "made")
        else:
            assert 'configmaps "made" not found' in await refused(run, *args, input_=text), write


async def test_objects_of_an_owned_controller_are_owned(
    start: Start, kubectl: Kubectl, namespace: str
) -> None:
    """The Pods of the resource's Deployment may be deleted, those of another one may not."""
    run = start(REFUSE)
    await run.kubectl("create", "deployment", "mine", "--image=nginx")
    kubectl("create", "deployment", "theirs", "--image=nginx")
    for name in ("mine", "theirs"):
        await run.kubectl("wait", "--for=create", "pod", f"--selector=app={name}", "--timeout=180s")
    pods = {}
    for name in ("mine", "theirs"):
        listed = await run.kubectl("get", "pods", f"--selector=app={name}", "--output=name")
        pods[name] = listed.split()[0]

    assert "is owned by ReplicaSet theirs" in await refused(run, "delete", pods["theirs"])
    await run.kubectl("delete", pods["mine"])
    await run.kubectl("scale", "deployment", "mine", "--replicas=0")
    await run.kubectl("rollout", "restart", "deployment", "mine")
    for args in (("scale", "--replicas=0"), ("rollout", "restart")):
        error = await refused(run, *args, "deployment", "theirs")
        assert f"Deployment {namespace}/theirs does not belong" in error
    # A session in a Pod acts on it, by websocket and by SPDY.
    error = await refused(run, "exec", pods["theirs"], "--", "true")
    assert "does not belong" in error


async def test_an_object_without_owner_is_adopted(
    start: Start, kubectl: Kubectl, recorder: Recorder
) -> None:
    """With `adopt`, each kind of write but a deletion gives it the owner."""
    run = start(ADOPT)
    for write in WRITES:
        kubectl("create", "configmap", "found", "--from-literal=b=1")
        args, text = command(write, "found")
        await run.kubectl(*args, input_=text)
        if write != "delete":
            body = await run.get("configmap", "found")
            assert (owners(body), body["data"]["a"]) == (["owner"], "2"), write
            assert recorder.seen[-1][1].name == "found"
            kubectl("delete", "configmap", "found")
    kubectl("create", "deployment", "web", "--image=nginx")
    await run.kubectl("scale", "deployment", "web", "--replicas=0")
    assert owners(await run.get("deployment", "web")) == ["owner"]


async def test_an_object_of_another_owner_is_not_adopted(
    start: Start, namespace: str, kubectl: Kubectl
) -> None:
    """With `adopt`, owned objects are refused, and the message does not offer to adopt them."""
    run = start(ADOPT)
    apply_owned_by_account(kubectl, config_map("theirs", namespace, a="1"))
    for write in WRITES:
        args, text = command(write, "theirs")
        error = await refused(run, *args, input_=text)
        assert "is owned by ServiceAccount default; rename" in error, write
        assert "ownership: adopt" not in error, write


async def test_without_a_policy_nothing_is_adopted_or_refused(
    start: Start, kubectl: Kubectl
) -> None:
    """With `ignore`, the default, existing objects keep their owners, or have no owner."""
    run = start(WATCH)
    for write in WRITES:
        kubectl("create", "configmap", "found", "--from-literal=b=1")
        args, text = command(write, "found")
        await run.kubectl(*args, input_=text)
        if write != "delete":
            body = await run.get("configmap", "found")
            assert (owners(body), body["data"]["a"]) == ([], "2"), write
            kubectl("delete", "configmap", "found")


async def test_an_object_of_another_owner_keeps_it(start: Start, kubectl: Kubectl) -> None:
    """Neither PUT nor apply takes an owner away or adds one."""
    run = start(WATCH)
    for name, write in (("a", "replace"), ("b", "server-side apply")):
        apply_owned_by_account(kubectl, config_map(name, a="1"))
        args, text = command(write, name)
        await run.kubectl(*args, input_=text)
        assert owners(await run.get("configmap", name)) == ["default"], write
