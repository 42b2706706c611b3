"""The example etcd: real members, real data, and faults while a client writes."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from rich.console import Console

from bench.etcd.chaos import Chaos, Plan
from bench.etcd.client import EtcdClient, NotAcknowledged
from bench.etcd.task_killer import TaskKiller
from bench.etcd.writer import Writer
from operator_runner.devcluster import Cluster
from operator_runner.devcluster.control_plane import Authority
from tests.support.examples import Example, running
from tests.support.gcs import GcsEmulator
from tests.support.kubectl import Json, Kubectl
from tests.support.waiting import eventually

KIND = "etcdclusters.etcd.database.coreos.com"
CHANGES = ("Record the number", "Change the members: ", "Create the Pod db-", "Delete its Pod")
"""Beginnings of the names of tasks that change something.

The last two follow another one in their pass: its kill may hit them before they are logged.
"""
OLDER, VERSION = "3.5.35", "3.6.8"


@pytest.fixture(scope="module")
def gcs(cluster: Cluster) -> Iterator[GcsEmulator]:
    """Serve Google Cloud Storage at the address of the API server, which Pods reach."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    host = urlsplit(config["clusters"][0]["cluster"]["server"]).hostname
    assert host is not None
    with GcsEmulator(host).serving() as emulator:
        yield emulator


@pytest.fixture(scope="module")
def example(
    cluster: Cluster, gcs: GcsEmulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Example]:
    """Run the operator, with both versions of etcd on the node."""
    environment = {"STORAGE_EMULATOR_HOST": gcs.url}
    scratch = tmp_path_factory.mktemp("etcd")
    with running("etcd", cluster, scratch, environment=environment) as example:
        for image in ("image.yaml", "image-3.5.yaml"):
            example.load_image(image)
        yield example


def etcd_cluster(name: str = "db", size: int = 1, **spec: Any) -> Json:
    return {
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": name},
        "spec": {"size": size} | spec,
    }


class World:
    """Reads the etcd clusters and waits for states."""

    def __init__(self, kubectl: Kubectl, example: Example) -> None:
        self.kubectl, self._operator = kubectl, example.operator

    def until(
        self, look: Callable[[], Any], check: Callable[[Any], Any] = bool, seconds: float = 180
    ) -> Any:
        return eventually(look, check, seconds=seconds, details=self._explain)

    def status(self, name: str = "db", kind: str = KIND) -> Json:
        status: Json = (self.kubectl.get(kind, name) or {}).get("status", {})
        return status

    def condition(self, type_: str, name: str = "db") -> Json:
        found = self.status(name).get("conditions", [])
        return next((each for each in found if each["type"] == type_), {})

    def until_settled(self, *names: str, cluster: str = "db", kind: str = KIND) -> None:
        """Wait until these members are ready, and no step is left."""
        self.until(
            lambda: self.status(cluster, kind),
            lambda status: (
                status.get("phase") == "Running"
                and status["reason"] == ""
                and status["members"] == {"ready": list(names), "unready": []}
            ),
        )

    def members(self, pod: str) -> list[Json]:
        """Return the members as etcd lists them."""
        command = ("etcdctl", "--write-out=json", "member", "list")
        # etcdctl gives up after five seconds.
        done = self.until(
            lambda: self.kubectl.run("exec", pod, "--", *command),
            lambda done: done.returncode == 0,
        )
        listed: Json = json.loads(done.stdout)
        return list(listed["members"])

    def client(self, name: str = "db", tls: ssl.SSLContext | None = None) -> EtcdClient:
        """Return a client of the Service of a cluster, once that leads to a member."""
        service = self.until(lambda: self.kubectl.get("service", f"{name}-client"))
        client = EtcdClient(f"{service['spec']['clusterIP']}:2379", tls)
        self.until(lambda: answers(client))
        return client

    def until_writing(self, writer: Writer, more: int = 10) -> None:
        """Wait until that many further writes are acknowledged."""
        target = len(writer.acknowledged) + more
        self.until(lambda: len(writer.acknowledged), lambda count: count >= target)

    def backed_up(self, resource: Json) -> Json:
        """Create an EtcdBackup; return its status once it has succeeded."""
        self.kubectl.apply(resource)
        name = resource["metadata"]["name"]
        return dict(
            self.until(lambda: self.status(name, "etcdbackup"), lambda s: s.get("succeeded"))
        )

    def volume(self, claim: str) -> Path:
        """Return the folder on this machine of the volume that a claim is bound to."""
        bound = self.kubectl.get("pvc", claim) or {}
        volume = self.kubectl.get("pv", bound["spec"]["volumeName"]) or {}
        return Path(volume["spec"]["local"]["path"])

    def scale(self, size: int, name: str = "db") -> None:
        self.kubectl("scale", KIND, name, f"--replicas={size}")

    def _explain(self) -> str:
        pods = self.kubectl("get", "pods", "--output=wide")
        status = json.dumps([body.get("status") for body in self.kubectl.list(KIND)])
        return f"{pods}\n{status}\n{self._operator.log()[-20000:]}"


@pytest.fixture
def world(kubectl: Kubectl, example: Example) -> Iterator[World]:
    """Yield a world whose clusters are deleted after the test: the operator continues."""
    yield World(kubectl, example)
    kubectl("delete", f"{KIND},clusters.etcd.coreos.com", "--all", "--timeout=180s")


def answers(client: EtcdClient) -> bool:
    """Return whether the Service leads to a member: kube-proxy follows a moment later."""
    try:
        client.get("/any")
    except NotAcknowledged:
        return False
    return True


def pods(kubectl: Kubectl, name: str = "db") -> dict[str, Json]:
    """Return the Pods of a cluster by name."""
    found = kubectl.list("pods", f"etcd_cluster={name}")
    return {pod["metadata"]["name"]: pod for pod in found}


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return {"Ready": "True"}.items() <= {c["type"]: c["status"] for c in conditions}.items()


def test_growing_upgrading_shrinking_and_lost_members_lose_no_acknowledged_write(
    world: World, example: Example, kubectl: Kubectl
) -> None:
    """From one member to three, to the next minor version, to five members and back to three.

    At last a member dies while the operator does not run.
    """
    kubectl.apply(etcd_cluster(size=1, version=OLDER))
    world.until_settled("db-0000")
    three = ("db-0000", "db-0001", "db-0002")
    with Writer(world.client()).writing() as writer:
        world.scale(3)
        world.until_settled(*three)
        check_upgrade(world, kubectl)
        world.until_settled(*three)
        world.until_writing(writer)
        for names in ((*three, "db-0003", "db-0004"), three):
            world.scale(len(names))
            world.until_settled(*names)
            assert {member["name"] for member in world.members("db-0000")} == {*names}
            world.until_writing(writer)

        # Without the operator etcd continues; with it a dead member is replaced by a new number.
        example.operator.kill()
        kubectl("delete", "pod", "db-0000", "--grace-period=0", "--force")
        world.until_writing(writer, more=50)
        example.restart()
        world.until_settled("db-0001", "db-0002", "db-0005")
        world.until_writing(writer)
        world.until(lambda: len(writer.acknowledged) > 200)
    assert writer.lost() == {}
    assert writer.failed_reads == []


def check_upgrade(world: World, kubectl: Kubectl) -> None:
    """Upgrade a cluster to the next minor version, with at most one member that is not ready."""
    before, unready = pods(kubectl), list[int]()

    def versions() -> set[str]:
        found = pods(kubectl).values()
        unready.append(sum(not is_ready(pod) for pod in found))
        return {pod["status"]["containerStatuses"][0]["image"].rpartition(":v")[2] for pod in found}

    kubectl.merge(KIND, "db", {"spec": {"version": "3.7.0"}})
    world.until(lambda: world.condition("Upgrading").get("reason") == "VersionNotSupported")
    assert "from 3.5.35 only the same or the next" in world.condition("Upgrading")["message"]
    assert {n: p["spec"] for n, p in before.items()} == {
        n: p["spec"] for n, p in pods(kubectl).items()
    }
    kubectl.merge(KIND, "db", {"spec": {"version": VERSION}})
    world.until(versions, lambda found: found == {VERSION})
    world.until(lambda: world.status()["currentVersion"] == VERSION)
    assert max(unready) <= 1
    assert {name: pod["metadata"]["uid"] for name, pod in before.items()} == {
        name: pod["metadata"]["uid"] for name, pod in pods(kubectl).items()
    }
    assert world.condition("Upgrading")["reason"] == "VersionReached"
    # The data could not be read by the version before.
    kubectl.merge(KIND, "db", {"spec": {"version": OLDER}})
    world.until(lambda: world.condition("Upgrading")["reason"] == "VersionNotSupported")
    kubectl.merge(KIND, "db", {"spec": {"version": VERSION}})


def test_clusters_of_both_apis_are_independent(world: World, kubectl: Kubectl) -> None:
    """Neither takes the objects of the other, and numbers begin at zero in each."""
    kubectl.apply(
        etcd_cluster("one"),
        {
            "apiVersion": "etcd.coreos.com/v1beta1",
            "kind": "Cluster",
            "metadata": {"name": "two"},
            "spec": {"size": 1, "version": VERSION},
        },
    )
    world.until_settled("one-0000", cluster="one")
    world.until_settled("two-0000", cluster="two", kind="clusters.etcd.coreos.com")
    world.client("one").put("/name", "one")
    world.client("two").put("/name", "two")
    assert world.client("one").get("/name") == "one"
    assert world.client("two").get("/name") == "two"
    kubectl("delete", KIND, "one")
    world.until(lambda: pods(kubectl, "one"), lambda found: not found)
    assert world.client("two").get("/name") == "two"
    assert kubectl.get("service", "two-client") is not None


@pytest.mark.slow
def test_a_change_of_members_outlives_each_kill_of_the_operator(
    world: World, example: Example, kubectl: Kubectl
) -> None:
    """It is killed after each task that changes something."""
    kubectl.apply(etcd_cluster(size=1))
    world.until_settled("db-0000")
    with Writer(world.client()).writing() as writer:
        killer = TaskKiller(
            example.operator,
            example.restart_arguments,
            kubectl.namespace,
            lambda task: task.startswith(CHANGES),
        )
        world.scale(2)
        killer.kill_until(lambda: world.status()["members"]["ready"] == ["db-0000", "db-0001"])
        world.until_settled("db-0000", "db-0001")
        world.scale(1)
        killer.kill_until(
            lambda: world.status()["members"] == {"ready": ["db-0000"], "unready": []}
        )
        world.until_settled("db-0000")
        world.until_writing(writer)
    assert all(any(task.startswith(each) for task in killer.kills) for each in CHANGES[:2])
    assert len(world.members("db-0000")) == 1
    assert writer.lost() == {}


@pytest.mark.slow
@pytest.mark.usefixtures("world")
def test_random_faults_lose_no_acknowledged_write(example: Example, kubectl: Kubectl) -> None:
    """The short form of `make bench-etcd`."""
    result = Chaos(example, Plan(minutes=0.3, seed=1), Console(), kubectl.namespace).run()
    assert {*result.done} == {
        *("kill member", "kill operator", "stall API server", "scale", "upgrade")
    }
    assert result.steps["Upgrade a member"] >= 1
    assert result.acknowledged > 100
    assert result.lost == ()


def backup(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdBackup",
        "metadata": {"name": name},
        "spec": {
            "etcdEndpoints": ["http://db-client:2379"],
            "storageType": "PersistentVolume",
            "persistentVolume": {"claimName": "backups"},
        }
        | spec,
    }


CLAIM: Json = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "backups"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "100Mi"}},
    },
}


def test_a_cluster_without_members_is_restored_from_its_newest_backup(
    world: World, kubectl: Kubectl
) -> None:
    """Made while a client writes; an EtcdRestore takes the data back to an older backup."""
    kubectl.apply(CLAIM, etcd_cluster(size=1))
    world.until_settled("db-0000")
    client = world.client()
    client.put("/age", "old")
    with Writer(client).writing() as writer:
        first = world.backed_up(backup("first"))
        world.until_writing(writer)
    assert first["etcdVersion"] == VERSION
    assert first["etcdRevision"] > 1
    client.put("/age", "new")
    # A write that was not acknowledged may have been carried out.
    before = client.values("/writes/")
    second = world.backed_up(backup("second"))
    # An edited spec leads to another backup; older ones are removed, files of others are not.
    volume = world.volume("backups")
    (volume / "second" / "notes.txt").touch()
    kubectl.merge("etcdbackup", "second", {"spec": {"backupPolicy": {"maxBackups": 1}}})
    third = world.until(
        lambda: world.status("second", "etcdbackup")["path"], lambda path: path != second["path"]
    )
    files = {str(each.relative_to(volume)) for each in volume.rglob("*.*")}
    assert files == {first["path"], third, "second/notes.txt"}
    world.until(lambda: len(kubectl.list("jobs", "etcd_backup=second")) == 1)

    # A Secret that is missing is in the status of the backup.
    kubectl.apply(backup("wrong", clientTLSSecret="nobody"))
    world.until(
        lambda: world.status("wrong", "etcdbackup"),
        lambda status: 'secret "nobody" not found' in status.get("reason", ""),
    )
    assert world.status("wrong", "etcdbackup")["succeeded"] is False

    kubectl("delete", "pod", "db-0000", "--grace-period=0", "--force")
    world.until_settled("db-0001")
    client = world.client()
    assert client.get("/age") == "new"
    assert writer.lost() == {}
    assert client.values("/writes/") == before

    restore = {
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdRestore",
        "metadata": {"name": "back"},
        "spec": {
            "etcdCluster": {"name": "db"},
            "backupStorageType": "PersistentVolume",
            "persistentVolume": {"claimName": "backups", "path": first["path"]},
        },
    }
    kubectl.apply(restore)
    world.until(lambda: world.status("back", "etcdrestore").get("succeeded"))
    world.until_settled("db-0002")
    assert world.client().get("/age") == "old"


def secrets_of(folder: Path, namespace: str) -> list[Json]:
    """Return the Secrets of a cluster `db`: of members, of clients and of the operator."""
    folder.mkdir()
    authority = Authority(folder, "ca")
    domain = f"db.{namespace}.svc"
    # etcd looks up the name of the address that a member comes from.
    names = (f"*.{domain}", f"*.{domain}.cluster.local", "db-client", "localhost")
    pairs = {
        "peer": authority.server("peer", names),
        "server": authority.server("server", names),
        "etcd-client": authority.client("etcd-client", "operator"),
    }
    ca = (folder / "ca.crt").read_bytes()
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"db-{prefix}"},
            "data": {
                f"{prefix}{suffix}": base64.b64encode(content).decode()
                for suffix, content in (
                    (".crt", pair.certificate.read_bytes()),
                    (".key", pair.key.read_bytes()),
                    ("-ca.crt", ca),
                )
            },
        }
        for prefix, pair in pairs.items()
    ]


@pytest.mark.slow
def test_members_use_tls_and_volumes(world: World, kubectl: Kubectl, tmp_path: Path) -> None:
    """Members and clients need certificates, and a member with a volume outlives its Pod."""
    folder = tmp_path / "pki"
    member = {"peerSecret": "db-peer", "serverSecret": "db-server"}
    tls = {"static": {"member": member, "operatorSecret": "db-etcd-client"}}
    kubectl.apply(
        *secrets_of(folder, kubectl.namespace),
        CLAIM,
        etcd_cluster(size=2, TLS=tls, pod={"persistentVolumeClaimSpec": CLAIM["spec"]}),
    )
    world.until_settled("db-0000", "db-0001")
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    # The address of the Service is not known before it is created.
    context.check_hostname = False
    stranger = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    stranger.check_hostname = False
    context.load_cert_chain(folder / "etcd-client.crt", folder / "etcd-client.key")
    client = world.client(tls=context)
    with pytest.raises(NotAcknowledged):
        EtcdClient(client.address, stranger).put("/a", "1")
    client.put("/a", "2")
    assert client.get("/a") == "2"
    assert {url for member in world.members("db-0000") for url in member["peerURLs"]} == {
        f"https://db-000{number}.db.{kubectl.namespace}.svc:2380" for number in range(2)
    }
    secure = {"etcdEndpoints": ["https://db-client:2379"], "clientTLSSecret": "db-etcd-client"}
    assert world.backed_up(backup("secure", **secure))["etcdVersion"] == VERSION

    former = pods(kubectl)["db-0001"]["metadata"]["uid"]
    kubectl("delete", "pod", "db-0001", "--grace-period=0", "--force")
    world.until(
        lambda: pods(kubectl).get("db-0001"),
        lambda pod: pod and pod["metadata"]["uid"] != former and is_ready(pod),
    )
    world.until_settled("db-0000", "db-0001")
    world.scale(1)
    world.until_settled("db-0000")
    world.until(lambda: kubectl.get("pvc", "db-0001") is None)
    assert kubectl.get("pvc", "db-0000") is not None
    assert world.client(tls=context).get("/a") == "2"


@pytest.mark.slow
def test_a_backup_in_google_cloud_storage_is_restored(
    world: World, kubectl: Kubectl, gcs: GcsEmulator
) -> None:
    """A key that is not accepted is in the status; a lost cluster is restored from the newest."""
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    credentials = {"wrong": gcs.credentials(other), "right": gcs.credentials()}
    secrets: list[Json] = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {"credentials.json": text},
        }
        for name, text in credentials.items()
    ]
    kubectl.apply(*secrets, etcd_cluster(size=1))
    world.until_settled("db-0000")
    world.client().put("/a", "1")

    def to_gcs(secret: str, name: str, **policy: int) -> Json:
        target = {"path": f"backups/team/{name}.db", "gcpSecret": secret}
        resource = backup(name, storageType="GCS", gcs=target, backupPolicy=policy)
        del resource["spec"]["persistentVolume"]
        return resource

    kubectl.apply(to_gcs("wrong", "wrong"))
    world.until(
        lambda: world.status("wrong", "etcdbackup").get("reason", ""),
        lambda reason: "Invalid JWT Signature" in reason,
    )
    assert gcs.objects == {}
    # Only the newest backup is kept; objects of others stay.
    foreign = "backups/team/hourly.db-notes-20260101000000"
    gcs.objects[foreign] = b""
    policy = {"backupIntervalInSecond": 1, "maxBackups": 1}
    first = world.backed_up(to_gcs("right", "hourly", **policy))["path"]
    world.until(lambda: {*gcs.objects}, lambda found: len(found) == 2 and first not in found)
    kubectl("delete", "etcdbackup", "hourly")
    assert foreign in gcs.objects
    assert world.backed_up(to_gcs("right", "db"))["path"] == "backups/team/db.db"
    kubectl("delete", "pod", "db-0000", "--grace-period=0", "--force")
    world.until_settled("db-0001")
    assert world.client().get("/a") == "1"
