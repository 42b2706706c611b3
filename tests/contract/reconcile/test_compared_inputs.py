"""Inputs of runs are compared with the permissions of a service account, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operator_runner.ansible.purity.content import ContentReader, ContentState
from operator_runner.app.unchanged_inputs import UnchangedInputs
from operator_runner.config.watches.lookup import Lookup
from operator_runner.controller.sources.dependents import Dependents
from operator_runner.core.model import GVK, Json, ObjectRef, RunContent, Trigger, Watch
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import connect
from operator_runner.kube.watch import MetadataEvent
from operator_runner.proxy.request_info import RequestInfo
from tests.support.kubectl import Kubectl
from tests.support.waiting import eventually

KIND = GVK("example.com", "v1", "Foo")
START = frozenset({Trigger.START})
NAMES = ("a", "b", "c")


async def silence(_: GVK, __: str | None) -> AsyncIterator[MetadataEvent]:
    """Watch nothing."""
    return
    yield


def read(inputs: UnchangedInputs, uid: str, kubectl: Kubectl, name: str) -> None:
    """Record that the run has read a ConfigMap."""
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/{name}"
    info, log = RequestInfo.parse(path), inputs.log(uid)
    assert info is not None
    assert log is not None
    log.sent("GET", path, {}, info)
    assert log.answered("GET", info, 200)
    log.decoded("GET", info, {}, kubectl("get", "--raw", path).encode())


@pytest.fixture
async def inputs(kubectl: Kubectl, tmp_path: Path) -> AsyncIterator[UnchangedInputs]:
    """Give inputs of an account that may list three ConfigMaps, by their names only."""
    kubectl("create", "serviceaccount", "reader")
    names = [f"--resource-name={name}" for name in NAMES]
    kubectl("create", "role", "named", "--verb=list", "--resource=configmaps", *names)
    account = f"{kubectl.namespace}:reader"
    kubectl("create", "rolebinding", "named", "--role=named", f"--serviceaccount={account}")
    can_list = ("auth", "can-i", "list", f"--as=system:serviceaccount:{account}")
    eventually(
        lambda: kubectl.run(*can_list, "configmaps/c"), lambda done: done.stdout.strip() == "yes"
    )
    assert kubectl.run(*can_list, "configmaps").stdout.strip() == "no"
    connection = await connect(kubectl.kubeconfig("reader", tmp_path), user_agent="tests")
    api, dependents = Api(connection), Dependents(silence, lambda *_: None, ())
    contents = ContentReader(Lookup.of({"HOME": str(tmp_path)}, "", ""))
    yield UnchangedInputs(api, Discovery(api), contents, lambda: ContentState("1"), dependents)
    await dependents.stop()
    await connection.close()


async def test_objects_are_compared_by_name_if_their_kind_cannot_be_listed(
    inputs: UnchangedInputs, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Of three objects of a kind all are listed at once, where that is permitted."""
    role = tmp_path / "roles/foo"
    (role / "tasks").mkdir(parents=True)
    watch = Watch(KIND, RunContent(role=role), skip_unchanged=True)
    metadata = {"name": "foo", "namespace": kubectl.namespace, "uid": "1", "resourceVersion": "1"}
    body: Json = {
        "apiVersion": "example.com/v1",
        "kind": "Foo",
        "metadata": metadata,
        "spec": {},
    }
    for name in NAMES:
        kubectl("create", "configmap", name)
    await inputs.begin(body, watch)
    for name in NAMES:
        read(inputs, "1", kubectl, name)
    inputs.ended(ObjectRef(KIND, kubectl.namespace, "foo"), "1", converged=True)
    assert await inputs.are_unchanged(body, watch, START)
    kubectl("label", "configmap", "b", "edited=yes")
    dependent = frozenset({Trigger.DEPENDENT})
    assert not await inputs.are_unchanged(body, watch, dependent)
