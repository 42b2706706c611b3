"""Requests of a play to Pods with kubectl and the run's kubeconfig, on a real node."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from operator_runner.devcluster import Cluster
from operator_runner.kube.session import connect
from tests.contract.proxy.conftest import WATCH, Recorder, Run, config_map, proxied
from tests.support.kubectl import Json, Kubectl

SECONDS = 180.0
# The image has busybox, but not the name `tar`, which kubectl cp needs.
SHELL = """
busybox mkdir /tmp/bin && busybox ln -s "$(busybox which busybox)" /tmp/bin/tar
i=0; while read line; do i=$((i+1)); echo $i:$line; done
"""
PATH = "/tmp/bin:/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def pod(kubectl: Kubectl, nginx_image: str) -> str:
    """Start a Pod of two containers: nginx, and a shell that numbers and repeats its input."""
    image = {"image": nginx_image, "imagePullPolicy": "IfNotPresent"}
    shell: Json = {
        "name": "shell",
        "command": ["sh", "-c", SHELL],
        "env": [{"name": "PATH", "value": PATH}],
        "stdin": True,
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "web", **image}, {**shell, **image}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    kubectl.wait_for_account()
    kubectl.apply(body)
    kubectl("wait", "--for=condition=Ready", "pod/p", f"--timeout={SECONDS:g}s")
    return "p"


@pytest.fixture
async def run(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> AsyncIterator[Run]:
    """Give the programs of one run, whose kubeconfig leads through the proxy."""
    kubectl.apply(config_map("owner", kubectl.namespace))
    owner = kubectl.get("configmap", "owner")
    assert owner is not None
    connection = await connect(cluster.kubeconfig, user_agent="operator-runner/test")
    try:
        async with proxied(connection, Recorder()) as proxy:
            with proxy.grant(owner, WATCH, "run-1") as text:
                (tmp_path / "kubeconfig").write_text(text)
                yield Run(tmp_path / "kubeconfig", cluster.bin)
    finally:
        await connection.close()


async def line_of(stream: asyncio.StreamReader | None, pattern: str) -> str:
    """Return the next line that matches; fail if the stream ends or stays silent before."""
    assert stream is not None
    seen = ""
    async with asyncio.timeout(SECONDS):
        while line := (await stream.readline()).decode():
            seen += line
            if re.search(pattern, line):
                return line
    raise AssertionError(f"no line like {pattern!r}: {seen}")


async def test_commands_in_pods_work_through_the_proxy(run: Run, pod: str, tmp_path: Path) -> None:
    """Exec and attach by websocket and by SPDY, cp, logs -f and port-forward all work."""
    for number, websockets in enumerate(("true", "false"), start=1):
        run.environment = {
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": websockets,
            "KUBECTL_PORT_FORWARD_WEBSOCKETS": websockets,
        }
        await _exec(run, pod)
        await _attach(run, pod, number)
        await _copy(run, pod, tmp_path)
        await _forward(run, pod)
    await _follow(run, pod)


async def _exec(run: Run, pod: str) -> None:
    command = ("exec", pod, "--container=shell", "--stdin", "--", "sh", "-c")
    script = "cat; echo wrong >&2; exit 7"
    status, out, err = await run.done(*run.command(*command, script), input_="typed\n")
    assert (status, out) == (7, "typed\n")
    assert "wrong\n" in err


async def _attach(run: Run, pod: str, number: int) -> None:
    attached = await run.start(*run.command("attach", pod, "--container=shell", "--stdin"))
    assert attached.stdin is not None
    attached.stdin.write(b"hello\n")
    assert await line_of(attached.stdout, f"^{number}:hello$")
    attached.kill()
    await attached.wait()


async def _copy(run: Run, pod: str, folder: Path) -> None:
    content = bytes(range(256)) * 4096
    (folder / "sent").write_bytes(content)
    flags = ("--container=shell",)
    await run.kubectl("cp", "sent", f"{pod}:/tmp/sent", *flags)
    await run.kubectl("cp", f"{pod}:/tmp/sent", "received", *flags)
    assert (folder / "received").read_bytes() == content
    (folder / "received").unlink()


async def _forward(run: Run, pod: str) -> None:
    forward = await run.start(*run.command("port-forward", f"pod/{pod}", ":8080"))
    line = await line_of(forward.stdout, "Forwarding from 127.0.0.1")
    port = line.partition("127.0.0.1:")[2].split()[0]
    async with aiohttp.ClientSession() as http:
        for _ in range(2):
            async with http.get(f"http://127.0.0.1:{port}/") as answer:
                assert "nginx" in await answer.text()
    forward.kill()
    await forward.wait()


async def _follow(run: Run, pod: str) -> None:
    """Follow a log: new lines are received."""
    follow = await run.start(*run.command("logs", pod, "--container=shell", "--follow"))
    assert await line_of(follow.stdout, "^2:hello$")
    attached = await run.start(*run.command("attach", pod, "--container=shell", "--stdin"))
    assert attached.stdin is not None
    attached.stdin.write(b"later\n")
    assert await line_of(follow.stdout, "^3:later$")
    for process in (attached, follow):
        process.kill()
        await process.wait()
