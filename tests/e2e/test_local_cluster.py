"""The local cluster with its node: its services, and its effects on the machine."""

from __future__ import annotations

import json
import operator
import os
import secrets
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from operator_runner.devcluster import Cluster, pack
from tests.support.clusters import CONTROL_PLANE, NODE, NOTHING, cluster_command, pids_of, traces_of
from tests.support.kubectl import Kubectl
from tests.support.waiting import eventually

_TEMPORARY = (
    "client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c;"
    " uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;"
)
"""Folders of nginx that any user can write to."""


_HELLO = "golang.org/x/example/hello@v0.0.0-20250915201037-7f05d217867b"


@pytest.fixture
def second() -> Iterator[Cluster]:
    """Start a cluster with a node, beside the one that all tests share."""
    yield from _started(nodes=1)


@pytest.fixture
def two_nodes() -> Iterator[Cluster]:
    """Start a cluster with two nodes, beside the one that all tests share."""
    yield from _started(nodes=2)


def _started(nodes: int) -> Iterator[Cluster]:
    cluster = Cluster(f"test-{secrets.token_hex(4)}")
    cluster.up(nodes=nodes)
    yield cluster
    cluster.down()


def _web(image: str, text: str) -> list[dict[str, Any]]:
    """Return a Pod that answers `text` at port 80, under any user id, and two Services before it.

    The Service `web` has an address; the headless `pods` gives the Pod the name `web-0.pods`.
    """
    config = (
        "pid /tmp/pid; error_log stderr notice; events {}"
        f" http {{ access_log off; {_TEMPORARY}"
        f" server {{ listen 80; location / {{ return 200 '{text}'; }} }} }}"
    )
    container = {
        "name": "nginx",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["nginx", "-c", "/etc/nginx/test/nginx.conf", "-g", "daemon off;"],
        "ports": [{"containerPort": 80}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 12345,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "config", "mountPath": "/etc/nginx/test"},
        ],
    }
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "config", "configMap": {"name": "web"}}]
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "web"},
            "data": {"nginx.conf": config},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {
                "hostname": "web-0",
                "subdomain": "pods",
                "containers": [container],
                "volumes": volumes,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 8000, "targetPort": 80}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "pods"},
            "spec": {"selector": {"app": "web"}, "clusterIP": "None", "ports": [{"port": 80}]},
        },
    ]


def _serve(kubectl: Kubectl, image: str, text: str) -> list[str]:
    """Start the Pod; return its URL and the Service's once both answer."""
    kubectl.wait_for_account()
    kubectl.apply(*_web(image, text))
    kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=180s")
    pod, service = kubectl.get("pod", "web"), kubectl.get("service", "web")
    assert pod is not None
    assert service is not None
    urls = [f"http://{pod['status']['podIP']}/", f"http://{service['spec']['clusterIP']}:8000/"]
    for url in urls:
        eventually(partial(_fetch, url), partial(operator.eq, text))
    return urls


def _fetch(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=3) as response:
            return str(response.read().decode())
    except OSError:
        return None


def test_a_service_and_a_pod_answer(kubectl: Kubectl, nginx_image: str) -> None:
    """From the ordinary shell: the Pod's address, and the Service's through kube-proxy."""
    _serve(kubectl, nginx_image, "one")


def test_pods_reach_services_and_the_api(kubectl: Kubectl, nginx_image: str) -> None:
    """From inside of a Pod its own Service and the API server answer, and so do its logs."""
    _, service = _serve(kubectl, nginx_image, "inside")
    wget = ("exec", "web", "--", "busybox", "wget", "-q", "-O", "-")
    assert kubectl(*wget, service) == "inside"
    connect = "busybox nc -w 3 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null"
    kubectl("exec", "web", "--", "busybox", "sh", "-c", connect)
    eventually(lambda: "start worker process" in kubectl("logs", "web"))


def test_pods_resolve_names_of_services_and_pods(kubectl: Kubectl, nginx_image: str) -> None:
    """By the cluster's DNS, with the search path of the Pod's namespace; other names do not exist.

    nginx looks up the servers of its configuration as every program with glibc does.
    """
    _serve(kubectl, nginx_image, "named")
    pod, service = kubectl.get("pod", "web"), kubectl.get("service", "web")
    assert pod is not None
    assert service is not None
    addresses = {
        f"web.{kubectl.namespace}": service["spec"]["clusterIP"],
        f"web-0.pods.{kubectl.namespace}": pod["status"]["podIP"],
        "kubernetes.default": "10.185.",
    }
    for name, address in addresses.items():
        lookup = ("exec", "web", "--", "busybox", "nslookup", f"{name}.svc.cluster.local")
        found = eventually(partial(kubectl.run, *lookup), lambda done: done.returncode == 0)
        assert f"Address: {address}" in found.stdout
    for name in ("web", "web-0.pods", *addresses):
        tested = _look_up(kubectl, name)
        assert tested.returncode == 0, tested.stderr
    assert 'host not found in upstream "example.com' in _look_up(kubectl, "example.com").stderr


def test_volumes_outlive_pods_and_end_with_their_claims(
    cluster: Cluster, kubectl: Kubectl, nginx_image: str
) -> None:
    """A Pod finds the data of the one before it; a new claim of the same name is empty."""
    kubectl.apply(_stateful(nginx_image))
    run = ("exec", "db-0", "--", "busybox")
    _wait_for_pod(kubectl, "db-0")
    kubectl(*run, "sh", "-c", "echo kept >/data/file")
    kubectl("delete", "pod/db-0")
    _wait_for_pod(kubectl, "db-0")
    assert kubectl(*run, "cat", "/data/file") == "kept\n"
    claim = kubectl.get("persistentvolumeclaim", "data-db-0")
    assert claim is not None
    volume = claim["spec"]["volumeName"]
    kubectl("delete", "statefulset/db", "persistentvolumeclaim/data-db-0")
    eventually(lambda: kubectl.get("persistentvolume", volume) is None)
    assert not (cluster.home.volumes / volume).exists()
    kubectl.apply(_stateful(nginx_image))
    _wait_for_pod(kubectl, "db-0")
    assert kubectl(*run, "ls", "-A", "/data") == ""


def _stateful(image: str) -> dict[str, Any]:
    """Return a StatefulSet of one Pod, with a volume of the default StorageClass at /data."""
    container = {
        "name": "nginx",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
            "volumeClaimTemplates": [claim],
        },
    }


def _wait_for_pod(kubectl: Kubectl, name: str) -> None:
    for state in ("create", "condition=Ready"):
        kubectl("wait", f"--for={state}", f"pod/{name}", "--timeout=180s")


def _look_up(kubectl: Kubectl, name: str) -> subprocess.CompletedProcess[str]:
    """Let nginx in the Pod resolve `name`, and return its judgement of the configuration."""
    config = (
        "pid /tmp/pid; error_log stderr; events {}"
        f" http {{ access_log off; {_TEMPORARY}"
        f" server {{ location / {{ proxy_pass http://{name}; }} }} }}"
    )
    script = "busybox cat >/tmp/lookup.conf && nginx -t -c /tmp/lookup.conf"
    return kubectl.run("exec", "-i", "web", "--", "busybox", "sh", "-c", script, input_=config)


@pytest.mark.slow
def test_two_clusters_do_not_disturb_each_other(
    cluster: Cluster, two_nodes: Cluster, kubectl: Kubectl, nginx_image: str, tmp_path: Path
) -> None:
    """Both serve at the same time; after the deletion of the second the first still serves.

    The second has two nodes, whose Pods reach each other.
    """
    second = two_nodes
    exported = tmp_path / "nginx.tar"
    cluster.exec(["ctr", "images", "export", str(exported), nginx_image])
    assert second.load(exported) == (nginx_image,)
    first_urls = _serve(kubectl, nginx_image, "first")
    in_second = Kubectl(second.bin / "kubectl", "default")
    second_urls = _serve(in_second, nginx_image, "second")
    _check_nodes(in_second, nginx_image, second_urls[1])
    assert not set(first_urls) & set(second_urls)
    urls = first_urls + second_urls
    eventually(lambda: [_fetch(url) for url in urls], (["first"] * 2 + ["second"] * 2).__eq__)
    assert traces_of(second) != NOTHING
    before = pids_of(cluster)
    second.down()
    assert traces_of(second) == NOTHING
    eventually(lambda: [_fetch(url) for url in urls], ["first", "first", None, None].__eq__)
    assert pids_of(cluster) == before


def _check_nodes(kubectl: Kubectl, image: str, service: str) -> None:
    """Assert that Pods of each node reach the other one's, a Service, and the cluster's DNS."""
    container = {"name": "nginx", "image": image, "imagePullPolicy": "IfNotPresent"}
    labels = {"app": "peer"}
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "peer"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    kubectl.apply(daemon_set)
    kubectl("rollout", "status", "daemonset/peer", "--timeout=180s")
    pods = kubectl.list("pod", "app=peer")
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-1", "node-2"}
    for pod, other in permutations(pods, 2):
        run = ("exec", pod["metadata"]["name"], "--", "busybox")
        wget = ("wget", "-q", "-O", "-")
        for command in (
            (*wget, f"http://{other['status']['podIP']}:8080/"),
            (*wget, service),
            ("nslookup", "web.default.svc.cluster.local"),
        ):
            eventually(partial(kubectl.run, *run, *command), lambda done: done.returncode == 0)


def test_a_node_is_started_and_removed_completely(second: Cluster, cluster: Cluster) -> None:
    """All parts are healthy; a killed kubelet is reported; a dead node leaves no mount."""
    parts = {part.name: part.problem for part in second.status()}
    assert parts == dict.fromkeys(CONTROL_PLANE | NODE)
    seen = traces_of(second)
    assert seen.links
    assert seen.routes
    assert seen.mounts
    assert seen.cgroups
    assert not seen.firewall, "kube-proxy's rules belong into the node"
    os.kill(pids_of(second)["kubelet"], signal.SIGKILL)
    eventually(lambda: "kubelet" not in pids_of(second))
    second.start_part("kubelet")
    eventually(lambda: {part.name: part.problem for part in second.status()}, parts.__eq__)
    second.down()
    assert traces_of(second) == NOTHING
    assert cluster.exec(["kubectl", "get", "--raw", "/readyz"]) == "ok"


def test_up_starts_afresh_when_the_node_was_killed(second: Cluster) -> None:
    """Leftovers of a dead node do not affect the next one."""
    node = json.loads(second.home.state.read_text())["nodes"][0]
    os.kill(node["init"]["pid"], signal.SIGKILL)
    eventually(lambda: "kubelet" not in pids_of(second))
    second.up()
    assert {part.name for part in second.status()} == CONTROL_PLANE | NODE
    assert not [part for part in second.status() if part.problem]


def test_an_image_of_a_go_program_runs(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    """It is built from its module; a package that the module lacks is named with a hint."""
    spec = {
        "tag": "operator-runner.local/hello:1",
        "source": [{"module": _HELLO, "path": "/hello"}],
        "entrypoint": ["/hello"],
    }
    source, archive = tmp_path / "hello.yaml", tmp_path / "hello.tar"
    source.write_text(json.dumps(spec))
    pack(source, archive)
    image = cluster.load(archive)[0]
    kubectl.wait_for_account()
    kubectl(
        *("run", "hello", f"--image={image}", "--image-pull-policy=Never", "--restart=Never"),
        *("--", "-g", "Welcome", "Pod"),
    )
    phase = "--for=jsonpath={.status.phase}=Succeeded"
    kubectl("wait", phase, "pod/hello", "--timeout=180s")
    eventually(lambda: kubectl("logs", "hello"), "Welcome, Pod!\n".__eq__)
    spec["source"] = [{"module": _HELLO, "package": "cmd/none", "path": "/hello"}]
    source.write_text(json.dumps(spec))
    refused = cluster_command("pack", str(source), str(archive))
    assert refused.returncode == 1
    assert "hello/cmd/none of golang.org/x/example/hello@v0.0.0" in refused.stderr
    assert "Check module, version and package in `source`" in refused.stderr


def test_a_file_without_an_image_is_rejected(cluster: Cluster, tmp_path: Path) -> None:
    """The error of `load` names the file and the tools for such archives."""
    path = tmp_path / "picture.tar"
    path.write_bytes(b"no archive")
    shown = cluster_command("load", "--name", cluster.name, str(path))
    assert shown.returncode == 1
    assert "picture.tar: invalid image archive" in shown.stderr
    assert "cluster pack" in shown.stderr
    assert (
        cluster_command("load", "--name", cluster.name, str(tmp_path / "none.tar")).returncode == 1
    )
