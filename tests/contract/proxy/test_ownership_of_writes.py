"""What kubectl writes in a run belongs to the run's owner; seen on a real API server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operator_runner.core.model import Json
from operator_runner.devcluster import Cluster
from operator_runner.kube.session import Connection
from operator_runner.proxy.server import Proxy
from tests.support.kubectl import Kubectl

from .conftest import WATCH, Recorder, Run, config_map, owners, proxied


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("configmap", "configmap NAME --from-literal=a=b"),
        ("deployment", "deployment NAME --image=nginx"),
        ("role", "role NAME --verb=get --resource=pods"),
        ("service", "service clusterip NAME --tcp=80"),
    ],
)
async def test_created_objects_of_built_in_kinds_are_owned(
    run: Run, owner: Json, kind: str, command: str
) -> None:
    """`kubectl create` of a built-in kind, which goes as protobuf, makes an owned object."""
    await run.kubectl("create", *command.replace("NAME", "made").split())
    made = await run.get(kind, "made")
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
    ]


@pytest.mark.parametrize(
    ("verb", "flags"),
    [("apply", ("--server-side",)), ("replace", ()), ("apply", ())],
    ids=["server-side apply", "replace", "apply"],
)
async def test_equal_writes_change_nothing(run: Run, verb: str, flags: tuple[str, ...]) -> None:
    """Writing the same again, owner left out, leaves owner and resourceVersion as they are."""
    if verb == "replace":
        await run.send("create", config_map("steady", a="1"))
    await run.send(verb, config_map("steady", a="1"), flags=flags)
    first = await run.get("configmap", "steady")
    await run.send(verb, config_map("steady", a="1"), flags=flags)
    second = await run.get("configmap", "steady")
    assert owners(first) == ["owner"]
    assert first["metadata"] == second["metadata"]


async def test_existing_objects_are_not_adopted(run: Run, kubectl: Kubectl) -> None:
    """An object of another creator gets no owner by any kind of write."""
    for name in ("patched", "replaced", "applied"):
        kubectl("create", "configmap", name)
    patch = json.dumps({"data": {"a": "1"}})
    for kind in ("merge", "strategic"):
        await run.kubectl("patch", "configmap", "patched", f"--type={kind}", f"--patch={patch}")
    await run.send("replace", config_map("replaced", a="1"))
    flags = ("--server-side", "--force-conflicts")
    await run.send("apply", config_map("applied", a="1"), flags=flags)
    found = [await run.get("configmap", name) for name in ("patched", "replaced", "applied")]
    assert [owners(body) for body in found] == [[], [], []]
    assert all(body["data"] == {"a": "1"} for body in found)


async def test_objects_with_generated_names_are_owned(run: Run) -> None:
    """An object whose name the API server makes up is owned as well."""
    body = config_map("")
    body["metadata"] = {"generateName": "gen-"}
    await run.send("create", body)
    found = json.loads(await run.kubectl("get", "configmaps", "--output=json"))["items"]
    assert [owners(one) for one in found if one["metadata"]["name"].startswith("gen-")] == [
        ["owner"]
    ]


async def test_objects_out_of_reach_get_annotations(run: Run, namespace: str) -> None:
    """Cluster-scoped objects and those of other namespaces name their owner in annotations."""
    other = f"{namespace}-other"
    await run.kubectl("create", "namespace", other)
    await run.send("create", config_map("far", other))
    expected = {
        "operator-sdk/primary-resource": f"{namespace}/owner",
        "operator-sdk/primary-resource-type": "ConfigMap",
    }
    for body in (
        await run.get("namespace", other),
        await run.get("configmap", "far", f"--namespace={other}"),
    ):
        assert body["metadata"]["annotations"] == expected
        assert owners(body) == []
    await run.kubectl("delete", "namespace", other, "--wait=false")


async def test_the_owner_is_not_its_own(run: Run) -> None:
    """A run may write its own resource without becoming its own owner."""
    await run.send("replace", config_map("owner", a="1"))
    body = await run.get("configmap", "owner")
    assert (body["data"], owners(body)) == ({"a": "1"}, [])


async def test_reviews_pass_unchanged(run: Run) -> None:
    """Reviews, which the API server refuses with metadata, pass untouched."""
    assert (await run.kubectl("auth", "can-i", "create", "pods")).strip() == "yes"
    assert "system:masters" in await run.kubectl("auth", "whoami", "--output=json")


async def test_a_dry_run_shows_the_owner(run: Run, recorder: Recorder) -> None:
    """A server-side dry run shows the owner, so diffs are true; nothing is reported for it."""
    flags = ("--dry-run=server", "--output=json")
    for verb in ("create", "apply"):
        shown = json.loads(await run.send(verb, config_map("dry"), flags=flags))
        assert owners(shown) == ["owner"], verb
    await run.send("create", config_map("dry"))
    diff = ("diff", "--server-side", "--filename=-")
    assert await run.kubectl(*diff, input_=json.dumps(config_map("dry"))) == ""
    await run.kubectl("delete", "configmap", "dry", "--dry-run=server")
    assert [verb for _, _, verb in recorder.written] == ["create"]


async def test_a_config_map_of_a_finalizer_has_no_owner(
    proxy: Proxy, run: Run, owner: Json, tmp_path: Path, control_plane_cluster: Cluster
) -> None:
    """A record outlives the owner; all else is the owner's, and stays so however it is written."""
    for name in ("replaced", "applied"):
        await run.send("apply", config_map(name), flags=("--server-side",))
    with proxy.grant(owner, WATCH, "run-2", of_finalizer=True) as text:
        (tmp_path / "finalizer").write_text(text)
        finalizer = Run(tmp_path / "finalizer", control_plane_cluster.bin)
        await finalizer.kubectl("create", "configmap", "record")
        await finalizer.kubectl("create", "secret", "generic", "other")
        await finalizer.send("replace", config_map("replaced", a="1"))
        await finalizer.send("apply", config_map("applied", a="1"), flags=("--server-side",))
    found = {name: await run.get("configmap", name) for name in ("record", "replaced", "applied")}
    found["other"] = await run.get("secret", "other")
    assert {name: owners(body) for name, body in found.items()} == {
        "record": [],
        "replaced": ["owner"],
        "applied": ["owner"],
        "other": ["owner"],
    }


async def test_no_owner_is_added_without_injection(
    connection: Connection,
    recorder: Recorder,
    owner: Json,
    tmp_path: Path,
    control_plane_cluster: Cluster,
) -> None:
    """With --inject-owner-ref=false nothing is added, in no form."""
    async with proxied(connection, recorder, inject_owner_ref=False) as proxy:
        with proxy.grant(owner, WATCH, "run-1") as text:
            (tmp_path / "kubeconfig").write_text(text)
            run = Run(tmp_path / "kubeconfig", control_plane_cluster.bin)
            await run.kubectl("create", "configmap", "bare")
            await run.send("replace", config_map("bare", a="1"))
            body = await run.get("configmap", "bare")
    assert owners(body) == []
    assert recorder.seen == []
