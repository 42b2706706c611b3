"""Imports of modules are loaded before the fork, and not again by each run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from operator_runner.ansible.run_spec import common_environment
from operator_runner.core.settings import AnsibleSettings
from tests.support.kubectl import Json, Kubectl
from tests.support.waiting import eventually

COLLECTION = "ansible_collections.kubernetes.core.plugins.modules"
UTIL = "ansible_collections.operator_sdk.util.plugins.modules"
PRELOAD = """
import json, os, pathlib, pkgutil, sys, tempfile
from operator_runner.ansible.runner import run_environment
from operator_runner.ansible.run_spec import common_environment
from operator_runner.ansible.forkserver.preload import preload
from operator_runner.core.settings import AnsibleSettings

content, *arguments = sys.argv[1:]
sys.argv[1:] = []
with tempfile.TemporaryDirectory() as scratch:
    environment = run_environment(common_environment(AnsibleSettings()), scratch)
    preload(environment, scratch, contents=[pathlib.Path(content)] if content else [])
"""
MODULES = """
kubeconfig, cases = arguments[0], json.loads(arguments[1])
os.environ["K8S_AUTH_KUBECONFIG"] = kubeconfig
import psutil
from ansible.module_utils._internal._ansiballz import _loader

found = {}
for package in cases:
    for name, arguments in cases[package]:
        reader, writer = os.pipe()
        if not os.fork():
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            out = os.memfd_create("out")
            os.dup2(out, 1)
            before = set(sys.modules)
            params = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
            try:
                _loader.run_module(
                    json_params=params, profile="legacy", module_fqn=f"{package}.{name}",
                    modlib_path="", extensions={},
                )
            except SystemExit:
                pass
            sys.stdout.flush()
            said = os.pread(out, 100000, 0).decode()
            os.write(writer, json.dumps([said[-2000:], sorted(set(sys.modules) - before)]).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            found[f"{name} {len(found)}"] = json.loads(answer.read())
        os.wait()
names = {p: sorted(m.name for m in pkgutil.iter_modules(sys.modules[p].__path__)) for p in cases}
print("RESULT" + json.dumps({"found": found, "names": names}))
"""
PLUGINS = """
import ansible
from ansible import constants
from ansible.plugins import loader

core = pathlib.Path(ansible.__file__).parent
unread = [
    str(path)
    for kind in ("connection", "shell", "become")
    for path in map(pathlib.Path, getattr(loader, f"{kind}_loader").all(path_only=True))
    if path.is_relative_to(core)
    and not constants.config.has_configuration_definition(kind, path.stem)
]
print("RESULT" + json.dumps(unread))
"""
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "web", "image": "none"}], "nodeName": "late"},
}
_NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}}


_FIRST_WITH_KUBECONFIG = 14
"""The version of the distribution `ansible` whose kubernetes.core has the module `kubeconfig`."""
_REVISION = "deployment.kubernetes.io/revision"
"""An annotation that a controller writes, without which `k8s_rollback` crashes."""


def _deployment(name: str, namespace: str) -> Json:
    labels = {"name": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _POD["spec"]},
        },
    }


def _cases(namespace: str, folder: Path) -> dict[str, list[tuple[str, dict[str, object]]]]:
    here: dict[str, object] = {"namespace": namespace}
    deployment = _deployment("web", namespace)
    patch = [{"op": "add", "path": "/spec/paused", "value": False}]
    copied = {"remote_path": "/tmp/x", "local_path": str(folder / "file")}
    web = {**here, "api_version": "apps/v1", "kind": "Deployment", "name": "web"}
    helm: dict[str, object] = {"binary_path": "/bin/true"}
    (folder / "file").write_text("x")
    core: list[tuple[str, dict[str, object]]] = [
        ("k8s", {"definition": deployment}),
        ("k8s", {"definition": deployment, "apply": True}),
        ("k8s_info", {**here, "kind": "Pod"}),
        (
            "k8s_json_patch",
            {**web, "patch": patch},
        ),
        ("k8s_scale", {**web, "replicas": 2, "wait": False}),
        ("k8s_rollback", {**web, "name": "earlier"}),
        ("k8s_service", {**here, "name": "web", "ports": [{"port": 80}], "selector": {"a": "b"}}),
        ("k8s_cluster_info", {}),
        ("k8s_exec", {**here, "pod": "web", "command": "true"}),
        (
            "k8s_cp",
            {**here, "pod": "web", **copied},
        ),
        ("k8s_log", {**here, "name": "web"}),
        ("k8s_taint", {"name": "late", "taints": [{"key": "a", "effect": "NoSchedule"}]}),
        ("k8s_drain", {"name": "late", "state": "cordon"}),
        ("k8s_drain", {"name": "late", "state": "drain", "delete_options": {"force": True}}),
        ("helm", {**helm, "name": "a", "release_namespace": namespace, "chart_ref": "x/y"}),
        ("helm_info", {**helm, "name": "a", "release_namespace": namespace}),
        ("helm_plugin", {**helm, "plugin_path": "/none", "state": "present"}),
        ("helm_plugin_info", helm),
        ("helm_pull", {**helm, "chart_ref": "x/y", "destination": str(folder)}),
        ("helm_registry_auth", {**helm, "host": "localhost", "state": "absent"}),
        ("helm_repository", {**helm, "name": "x", "repo_url": "http://127.0.0.1:9"}),
        ("helm_template", {**helm, "chart_ref": str(folder)}),
    ]
    if int(version("ansible").split(".")[0]) >= _FIRST_WITH_KUBECONFIG:
        core.append(("kubeconfig", {"path": str(folder / "config"), "current_context": "a"}))
    status = {"api_version": "v1", "kind": "Pod", "name": "web", **here, "status": {"message": "x"}}
    rest = [(name, dict[str, object]()) for name in ("k8s_event", "osdk_metric", "requeue_after")]
    return {COLLECTION: core, UTIL: [("k8s_status", status), *rest]}


def test_modules_import_nothing_late(control_plane: Path, kubectl: Kubectl, tmp_path: Path) -> None:
    """Each module of the collections works on a real API server with preloaded imports."""
    kubectl.wait_for_account()
    kubectl.apply(_NODE, _POD, _deployment("earlier", kubectl.namespace))
    eventually(
        lambda: kubectl.get("deployment", "earlier"),
        lambda found: found is not None and _REVISION in found["metadata"].get("annotations", {}),
    )
    cases = _cases(kubectl.namespace, tmp_path)
    role = tmp_path / "roles" / "web"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks" / "main.yml").write_text("- kubernetes.core.k8s_exec: {}\n")
    result = _preload(control_plane, str(role), cases)
    kubectl.run("delete", "node", "late", "--wait=false")
    late = {name: new for name, (_, new) in result["found"].items() if new}
    assert late == {}, result["found"]
    for package, names in result["names"].items():
        assert {name for name, _ in cases[package]} >= set(names)


def test_the_core_api_is_loaded_when_it_is_used(control_plane: Path, kubectl: Kubectl) -> None:
    """Without a role that uses it, its models are loaded by the module that connects to a Pod."""
    kubectl.wait_for_account()
    kubectl.apply(_POD)
    arguments: dict[str, object] = {"namespace": kubectl.namespace, "pod": "web", "command": "true"}
    cases = {COLLECTION: [("k8s_info", {"kind": "Pod"}), ("k8s_exec", arguments)]}
    found = _preload(control_plane, "", cases)["found"]
    assert found["k8s_info 0"][1] == []
    assert "kubernetes.client.models.v1_pod" in found["k8s_exec 1"][1]


def test_a_run_reads_no_documentation_of_plugins() -> None:
    """What `PlaybookExecutor` asks of connection, shell and become plugins is read before."""
    assert _run(PLUGINS, "") == []


def _preload(kubeconfig: Path, content: str, cases: Any) -> dict[str, Any]:
    """Run modules in forks of a process with preloaded imports.

    Returns `found`: the end of the output and the late imports, by module and number; and `names`:
    the modules of each collection.
    """
    result: dict[str, Any] = _run(MODULES, content, str(kubeconfig), json.dumps(cases))
    return result


def _run(program: str, *arguments: str) -> Any:
    """Return what a program writes as JSON after `RESULT`; it begins with `PRELOAD`."""
    command = [sys.executable, "-c", PRELOAD + program, *arguments]
    environment = {**os.environ, **common_environment(AnsibleSettings())}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "RESULT" in done.stdout, done.stderr
    return json.loads(done.stdout.partition("RESULT")[2])
