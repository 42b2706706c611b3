"""The example TsTest: Deployments, and the two versions of its API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from operator_runner.devcluster import Cluster
from tests.support.examples import Example, running
from tests.support.kubectl import Json, Kubectl
from tests.support.waiting import eventually

KIND = "tstests.stable.example.com"


def tstest(name: str = "web", version: str = "v1", **spec: Any) -> Json:
    return {
        "apiVersion": f"stable.example.com/{version}",
        "kind": "TsTest",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def example(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """Run the operator, with its image on the node."""
    with running("tstest", cluster, tmp_path_factory.mktemp("tstest")) as example:
        example.load_image()
        yield example


def test_a_renamed_deployment_is_replaced(example: Example, kubectl: Kubectl) -> None:
    """The Deployment of the new name has the Pods, and the old one is gone."""
    kubectl.apply(tstest(replicas=2))
    kubectl("wait", "--for=create", "deployment/web", "--timeout=90s")
    kubectl("rollout", "status", "deployment/web", "--timeout=180s")
    kubectl.merge(KIND, "web", {"spec": {"deploymentName": "front"}})
    eventually(
        lambda: [d["metadata"]["name"] for d in kubectl.list("deployments")],
        lambda names: names == ["front"],
        told=example.operator.log,
    )
    kubectl("rollout", "status", "deployment/front", "--timeout=180s")
