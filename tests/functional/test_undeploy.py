"""`operator-runner undeploy` on a real API server: deleted objects, kept objects, output."""

from __future__ import annotations

import json
import os
import pty
import secrets
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Json, Kubectl
from tests.support.nginx import KIND
from tests.support.operator import REPOSITORY
from tests.support.session import USE_VENV

RUNNER = Path(sys.executable).parent / "operator-runner"


@dataclass(frozen=True)
class Site:
    """An operator that is installed in a namespace of its own, and two users' resources."""

    system: Kubectl
    users: Kubectl
    kubeconfig: Path
    folder: Path
    group: str
    """Of the kind Web, one of its own: names of kinds are taken for a group as a whole."""

    @property
    def crd(self) -> str:
        return f"webs.{self.group}"

    def command(self, *args: str) -> list[str]:
        """Return the command; the garbage collector discovers new kinds twice a minute."""
        kubectl = f"--kustomize={self.system.program} kustomize"
        config = f"--kubeconfig={self.kubeconfig}"
        return [str(RUNNER), "undeploy", str(self.folder), kubectl, config, "--timeout=240", *args]

    def undeploy(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run without a terminal."""
        done = subprocess.run(
            self.command(*args),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def resource(self, name: str, **metadata: object) -> str:
        """Make a resource that owns a Pod and a PersistentVolumeClaim; return its uid."""
        body = {
            "apiVersion": f"{self.group}/v1",
            "kind": "Web",
            "metadata": {"name": name, **metadata},
        }
        self.users.apply(body)
        made = self.users.get(self.crd, name)
        assert made is not None
        uid: str = made["metadata"]["uid"]
        owner = {"apiVersion": f"{self.group}/v1", "kind": "Web", "name": name, "uid": uid}
        meta = {"name": name, "ownerReferences": [owner]}
        self.users.wait_for_account()
        container = {"name": "c", "image": "none"}
        size = {"requests": {"storage": "1Gi"}}
        self.users.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta,
                "spec": {"containers": [container]},
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": meta,
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": size},
            },
        )
        return uid

    def secret(self, *keys: str) -> None:
        """Make the Secret with the certificates of the Service."""
        data = (f"--from-literal={key}=x" for key in keys)
        self.system("create", "secret", "generic", "manager-certificate", *data)

    def has(self, kind: str, name: str) -> bool:
        return self.system.get(kind, name) is not None


def manifests(namespace: str, group: str) -> list[Json]:
    """Return the objects of an operator; its Deployment has no replicas, as there is no node."""
    pod = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "manager", "image": "none"}]},
    }
    inside = {"name": "manager", "namespace": namespace}
    schema = {"openAPIV3Schema": {"type": "object"}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"webs.{group}"},
            "spec": {
                "group": group,
                "names": {"kind": "Web", "plural": "webs"},
                "scope": "Namespaced",
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            },
        },
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": inside},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": namespace},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": inside,
            "spec": {"ports": [{"port": 443}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": inside,
            "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": pod},
        },
        {"apiVersion": "none.test/v1", "kind": "Unknown", "metadata": inside},
    ]


@pytest.fixture
def site(control_plane_cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> Site:
    """Install an operator of its own for the test."""
    name = f"op-{secrets.token_hex(3)}"
    group = f"{name}.test"
    system = replace(kubectl, namespace=name)
    objects = manifests(name, group)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "kustomization.yaml").write_text("resources: [all.yaml]\n")
    for body in objects[:-1]:
        system("apply", "--filename=-", input_=yaml.safe_dump(body))
    system.wait_for_kinds(f"webs.{group}")
    return Site(system, kubectl, control_plane_cluster.kubeconfig, tmp_path, group)


def test_resources_and_pods_are_kept(site: Site) -> None:
    """All of the operator goes, its empty namespace too; a second time there is nothing to do."""
    site.resource("kept", finalizers=["undeploy.test/web"])
    # The operator makes it for its webhook.
    site.secret("ca.crt", "ca.key", "tls.crt", "tls.key")
    done = site.undeploy()
    assert done.returncode == 0, done.stderr
    assert site.users.get("pod", "kept") is not None
    assert site.users.get(site.crd, "kept") is not None
    assert f"Kept: CRD {site.crd} and 1 resource." in done.stdout
    assert f"kubectl patch {site.crd} kept --namespace={site.users.namespace}" in done.stdout
    for kind in ("deployment", "service", "serviceaccount"):
        assert not site.has(kind, "manager")
    assert not site.has("clusterrole", site.system.namespace)
    site.system("wait", "--for=delete", f"namespace/{site.system.namespace}", "--timeout=240s")
    again = site.undeploy()
    assert again.returncode == 0, again.stderr
    assert f"Namespace {site.system.namespace} not found" in again.stdout


def test_a_namespace_that_is_not_empty_is_kept(site: Site) -> None:
    """A resource of a user in the operator's own namespace keeps it, and is named."""
    replace(site, users=site.system).resource("inside")
    # As cert-manager creates it, for the same Service.
    site.secret("ca.crt", "tls.crt", "tls.key")
    done = site.undeploy()
    assert done.returncode == 0, done.stderr
    assert f"Namespace {site.system.namespace} kept, because it contains" in done.stdout
    assert "Web inside" in done.stdout
    assert site.has("pod", "inside")
    assert site.has("secret", "manager-certificate")
    assert not site.has("deployment", "manager")


def test_without_a_terminal_yes_is_required(site: Site) -> None:
    """--with-crds lists the objects and refuses; with --yes all owned objects are deleted."""
    site.resource("lost")
    done = site.undeploy("--with-crds")
    assert done.returncode == 1
    assert "no terminal" in done.stderr
    where = site.users.namespace
    (line,) = (each for each in done.stdout.splitlines() if each.startswith(f"  Web {where}/lost:"))
    assert {f"Pod {where}/lost", f"PersistentVolumeClaim {where}/lost"} <= {
        *line.partition(": ")[2].split(", ")
    }
    assert "Total: 1 resource." in done.stdout
    assert site.has("deployment", "manager")
    assert site.users.get(site.crd, "lost") is not None

    done = site.undeploy("--with-crds", "--yes")
    assert done.returncode == 0, done.stderr
    assert not site.has("crd", site.crd)
    assert not site.has("deployment", "manager")
    assert site.users.get("pod", "lost") is None


@pytest.mark.parametrize(("answer", "goes"), [("n", False), ("y", True)])
def test_at_a_terminal_the_user_decides(site: Site, answer: str, goes: bool) -> None:
    """The question names the cluster; any answer except yes changes nothing."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        site.command("--with-crds"), stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        os.write(master, f"{answer}\n".encode())
        out, _ = process.communicate(timeout=300)
    os.close(slave)
    os.close(master)
    assert b"Delete all of this on https://" in out, out.decode()
    assert process.returncode == (0 if goes else 1)
    assert site.has("crd", site.crd) is not goes
    assert site.has("deployment", "manager") is not goes


def test_resources_with_a_finalizer_are_reported(site: Site) -> None:
    """While the finalizer exists the operator is kept; the printed commands remove it."""
    site.resource("held", finalizers=["undeploy.test/web"])
    done = site.undeploy("--with-crds", "--yes", "--timeout=2")
    assert done.returncode == 1
    assert "not deleted within 2 s; the operator is still deployed" in done.stderr
    assert site.has("deployment", "manager")
    (command,) = [line for line in done.stderr.splitlines() if "kubectl patch" in line]
    assert f"kubectl patch {site.crd} held" in command
    site.users(
        "patch", site.crd, "held", "--type=merge", '--patch={"metadata":{"finalizers":null}}'
    )
    done = site.undeploy("--with-crds", "--yes")
    assert done.returncode == 0, done.stderr
    assert not site.has("crd", site.crd)


def test_remaining_dependents_are_reported(site: Site) -> None:
    """The CRD is kept while dependents exist: without it they would never be deleted."""
    uid = site.resource("kept")
    holder = site.users("create", "configmap", "holder", "--output=jsonpath={.metadata.uid}")
    owners = [
        {"apiVersion": f"{site.group}/v1", "kind": "Web", "name": "kept", "uid": uid},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "holder", "uid": holder},
    ]
    patch = json.dumps({"metadata": {"ownerReferences": owners}})
    site.users("patch", "pod", "kept", "--type=merge", f"--patch={patch}")
    done = site.undeploy("--with-crds", "--yes", "--timeout=2")
    assert done.returncode == 1
    assert "the operator and the CRDs are still deployed" in done.stderr
    # On a busy machine, the claim of the same name may still be there too.
    remaining = done.stderr.partition("try again: ")[2].rstrip("\n").split(", ")
    assert f"Pod {site.users.namespace}/kept" in remaining
    assert site.has("crd", site.crd)
    done = site.undeploy("--with-crds", "--yes")
    assert done.returncode == 0, done.stderr
    assert not site.has("crd", site.crd)
    assert site.users.get("pod", "kept") is not None


def test_make_deploys_and_undeploys_the_nginx_operator(control_plane_cluster: Cluster) -> None:
    """IMG becomes the manager's image; undeploy leaves the CRD, uninstall takes it."""
    system = Kubectl(control_plane_cluster.bin / "kubectl", "nginx-operator-system")

    def make(*arguments: str) -> str:
        done = subprocess.run(
            ["make", *USE_VENV, f"KUBECTL={system.program}", *arguments],
            cwd=REPOSITORY,
            env=os.environ | {"KUBECONFIG": str(control_plane_cluster.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    system("delete", f"crd/{KIND}", "--ignore-not-found")
    system.wait_not_terminating()
    make("install")
    make("deploy", "IMG=registry.local:5000/team/nginx:v1")
    deployment = system.get("deployment", "nginx-operator-controller-manager")
    assert deployment is not None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.local:5000/team/nginx:v1"

    make("undeploy")
    assert system.get("deployment", "nginx-operator-controller-manager") is None
    assert system.get("clusterrole", "nginx-operator-manager-role") is None
    assert system.get("crd", KIND) is not None
    assert "it has no resources" in make("uninstall", "ARGS=--yes")
    assert system.get("crd", KIND) is None
    system("wait", "--for=delete", "namespace/nginx-operator-system", "--timeout=240s")
