"""The control plane without a node, as a user without root has it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster, ClusterError
from operator_runner.devcluster.errors import NotRunning, PartDied, PortTaken
from tests.support.clusters import CONTROL_PLANE, NOTHING, cluster_command, pids_of, traces_of
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """Start a control plane that several tests share; each leaves it as it was."""
    cluster = Cluster(f"test-{secrets.token_hex(4)}")
    cluster.up(control_plane_only=True)
    yield cluster
    cluster.down()


@pytest.fixture
def control_plane() -> Iterator[Cluster]:
    """Name a cluster of the test's own; the test starts it without a node."""
    cluster = Cluster(f"test-{secrets.token_hex(4)}")
    yield cluster
    cluster.down()


def test_a_control_plane_is_started_and_removed_completely(control_plane: Cluster) -> None:
    """All parts are well, kubectl works without settings, and afterwards nothing is left."""
    before = traces_of(control_plane)
    control_plane.up(control_plane_only=True)
    parts = control_plane.status()
    assert {part.name: part.problem for part in parts} == dict.fromkeys(CONTROL_PLANE)
    answer = subprocess.run(
        [
            control_plane.bin / "kubectl",
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.groups}",
        ],
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "system:masters" in answer.stdout
    control_plane.down()
    assert before == traces_of(control_plane) == NOTHING
    assert not control_plane.home.path.exists()


def test_the_files_of_a_cluster_are_private(running: Cluster) -> None:
    """No other user of the machine reads the kubeconfig, the keys or the logs."""
    home = running.home
    assert running.kubeconfig.stat().st_mode & 0o777 == 0o600
    for folder in (home.path, home.pki, home.logs, home.etcd):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_up_again_changes_nothing(running: Cluster) -> None:
    """A second `up` finds the cluster well: the same processes and the same kubeconfig."""
    before = pids_of(running), running.kubeconfig.read_text()
    running.up(control_plane_only=True)
    assert (pids_of(running), running.kubeconfig.read_text()) == before


def test_up_repairs_a_cluster_whose_part_was_killed(running: Cluster) -> None:
    """`status` reports the dead part and fails; `up` starts just that part, data intact."""
    name = running.name
    running.exec(["kubectl", "create", "configmap", "kept"])
    before = pids_of(running)
    os.kill(before["kube-controller-manager"], signal.SIGKILL)

    def is_reported() -> bool:
        shown = cluster_command("status", "--name", name)
        return shown.returncode == 1 and "ended by itself" in shown.stdout

    eventually(is_reported)
    running.up(control_plane_only=True)
    after = pids_of(running)
    assert after.keys() == before.keys()
    changed = {part for part, pid in after.items() if pid != before[part]}
    assert changed == {"kube-controller-manager"}
    assert "kept" in running.exec(["kubectl", "get", "configmaps", "-o", "name"])
    assert cluster_command("status", "--name", name).returncode == 0


def test_parts_stop_and_start(running: Cluster) -> None:
    """A stopped API server does not respond; started again, it has the same objects."""
    running.exec(["kubectl", "create", "configmap", "stored"])
    running.stop_part("kube-apiserver")
    with pytest.raises(ClusterError, match="refused"):
        running.exec(["kubectl", "get", "configmaps"])
    running.start_part("kube-apiserver")
    assert "stored" in running.exec(["kubectl", "get", "configmaps", "-o", "name"])
    with pytest.raises(NotRunning, match=r"no part 'kubelet'[\s\S]*kube-apiserver"):
        running.stop_part("kubelet")


def test_a_port_in_use_is_reported_and_nothing_is_left(control_plane: Cluster) -> None:
    """The error names port and fix, and no part of the cluster was started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"port {port} .*\n.*--port"):
            control_plane.up(control_plane_only=True, port=port)
    assert traces_of(control_plane) == NOTHING


def test_a_component_that_fails_at_the_start_is_reported_with_its_log(
    control_plane: Cluster, tmp_path: Path
) -> None:
    """The error holds the last words of the part; its log stays, its processes do not."""
    assets = tmp_path / "assets"
    assets.mkdir()
    for program in ("kube-apiserver", "kube-controller-manager", "kubectl"):
        (assets / program).symlink_to("/bin/true")
    (assets / "etcd").write_text("#!/bin/sh\necho etcd cannot go on >&2\nexit 7\n")
    (assets / "etcd").chmod(0o700)
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(assets)}
    broken = Cluster(control_plane.name, environment=environment)
    with pytest.raises(PartDied, match=r"etcd ended by itself.*etcd\.log:\n  etcd cannot go on"):
        broken.up(control_plane_only=True)
    assert broken.home.log_of("etcd").read_text() == "etcd cannot go on\n"
    assert traces_of(broken) == NOTHING
    with pytest.raises(NotRunning, match="no running cluster"):
        broken.status()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing(control_plane: Cluster, number: int) -> None:
    """Ctrl-C while etcd or the API server start leaves nothing on the machine."""
    arguments = ("up", "--name", control_plane.name, "--control-plane-only")
    with subprocess.Popen(
        [sys.executable, "-m", "operator_runner.devcluster", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        eventually(control_plane.home.log_of("kube-apiserver").exists)
        started.send_signal(number)
        _, errors = started.communicate(timeout=180)
    assert started.returncode == 130
    assert "Interrupted" in errors
    assert not control_plane.home.path.exists()
    assert traces_of(control_plane) == NOTHING


def test_down_needs_no_stored_state(control_plane: Cluster) -> None:
    """If a full disk truncated the state, `down` finds the processes; it can be repeated."""
    control_plane.up(control_plane_only=True)
    control_plane.home.state.write_text("{")
    control_plane.down()
    assert traces_of(control_plane) == NOTHING
    control_plane.down()


def test_up_after_a_reboot_starts_afresh(control_plane: Cluster) -> None:
    """A state of another boot is stale: its pids may be reused, and are not signalled."""
    control_plane.up(control_plane_only=True)
    control_plane.exec(["kubectl", "create", "configmap", "kept"])
    state = control_plane.home.state
    stored = json.loads(state.read_text())
    with subprocess.Popen(["sleep", "600"]) as bystander:
        process = {"pid": bystander.pid, "started": 1}
        stored |= {"boot": "another", "processes": dict.fromkeys(stored["processes"], process)}
        state.write_text(json.dumps(stored))
        control_plane.up(control_plane_only=True)
        assert bystander.poll() is None
        bystander.kill()
    assert "kept" not in control_plane.exec(["kubectl", "get", "configmaps", "-o", "name"])
    assert pids_of(control_plane).keys() == CONTROL_PLANE


def test_exec_runs_commands_with_the_settings_of_the_cluster(running: Cluster) -> None:
    """Options belong to the command, its exit code is passed on, and kubectl has its own cache."""
    run = ("exec", "--name", running.name)
    shown = cluster_command(*run, "kubectl", "get", "namespace", "default", "--output", "name")
    assert shown.stdout == "namespace/default\n"
    assert running.home.kubectl_cache.is_dir()
    assert (
        cluster_command(*run, "sh", "-c", 'test -r "$KUBECONFIG"; exit $((7 + $?))').returncode == 7
    )
    missing = cluster_command(*run, "no-such-program")
    assert (missing.returncode, missing.stderr) == (1, "Error: no-such-program: no such program\n")


def test_commands_without_a_cluster_name_a_hint() -> None:
    """Each error has the command to start a cluster; `down` does nothing."""
    for command in (["status"], ["exec", "true"], ["stop", "etcd"], ["start", "etcd"]):
        first, *rest = command
        shown = cluster_command(first, "--name", "none-such", *rest)
        assert shown.returncode == 1
        assert "cluster up --name none-such" in shown.stderr
    assert cluster_command("down", "--name", "none-such").returncode == 0


def test_a_node_is_distinguished_from_a_control_plane(running: Cluster, tmp_path: Path) -> None:
    """Images have nowhere to go without a node, and `up` does not turn one into the other."""
    with pytest.raises(NotRunning, match="control plane only"):
        running.load(tmp_path / "image.tar")
    with pytest.raises(ClusterError, match=r"without a node\n.*cluster down"):
        running.up()
