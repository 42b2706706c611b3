"""The clients that plays use beside kubectl: kubernetes.core, the Python client, helm."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support import helm
from tests.support.kubectl import Json, Kubectl

from .conftest import Recorder, Run, owners

PYTHON = """
from kubernetes import client, config, watch
config.load_kube_config()
core = client.CoreV1Api()
namespace = config.list_kube_config_contexts()[1]["context"]["namespace"]
body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="typed"), data={"a": "1"})
made = core.create_namespaced_config_map(namespace, body)
made.data["a"] = "2"
core.replace_namespaced_config_map("typed", namespace, made)
# Such a watch may begin with a state that is older than the last write.
for event in watch.Watch().stream(core.list_namespaced_config_map, namespace):
    if event["object"].metadata.name == "typed" and event["object"].data["a"] == "2":
        print(event["object"].metadata.owner_references[0].name)
        break
"""

CHART = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {word: {{ .Values.word }}}
"""


async def test_objects_of_the_python_client_are_owned(run: Run) -> None:
    """Typed objects, which carry no kind, are owned; replace and watch work."""
    status, out, err = await run.done(sys.executable, "-c", PYTHON)
    assert (status, out.strip()) == (0, "owner"), err


async def test_objects_of_the_k8s_module_are_owned(
    run: Run, recorder: Recorder, kubectl: Kubectl
) -> None:
    """The k8s module creates owned objects, changes nothing twice, applies and deletes."""
    definition = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "core", "namespace": kubectl.namespace},
        "data": {"a": "1"},
    }
    applied: Json = {"apply": True, "server_side_apply": {"field_manager": "play"}}
    tasks: list[Json] = [{}, {}, {"force": True}, applied, {"state": "absent"}]
    results = await _play(
        run, *({"kubernetes.core.k8s": {"definition": definition, **task}} for task in tasks)
    )
    created, repeated, replaced, _, deleted = (result["changed"] for result in results)
    assert (created, repeated, replaced, deleted) == (True, False, False, True)
    assert [owners(result["result"]) for result in results[:4]] == [["owner"]] * 4
    verbs = [verb for _, _, verb in recorder.written]
    assert (verbs[0], verbs[-1]) == ("create", "delete")


async def test_releases_of_helm_are_owned(run: Run, tmp_path: Path) -> None:
    """A release is installed, upgraded and removed; its objects are owned."""
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: tried, version: 0.1.0}")
    (chart / "templates" / "map.yaml").write_text(CHART)
    for word in ("first", "second"):
        status, out, err = await run.done(
            helm.program(), "upgrade", "--install", "tried", str(chart), f"--set=word={word}"
        )
        assert status == 0, out + err
        made = await run.get("configmap", "tried")
        assert (owners(made), made["data"]) == (["owner"], {"word": word})
    status, out, err = await run.done(helm.program(), "uninstall", "tried", "--wait")
    assert status == 0, out + err
    assert "configmap/tried" not in await run.kubectl("get", "configmaps", "--output=name")


async def test_loopback_is_reached_directly_behind_a_web_proxy(run: Run) -> None:
    """Loopback is reached directly where the Pod's environment has a proxy for the web."""
    run.environment = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:1")
    status, out, err = await run.done(sys.executable, "-c", PYTHON)
    assert (status, out.strip()) == (0, "owner"), err
    (result,) = await _play(run, {"kubernetes.core.k8s_info": {"kind": "ConfigMap"}})
    assert "typed" in [body["metadata"]["name"] for body in result["resources"]]
    assert "configmap/typed" in await run.kubectl("get", "configmaps", "--output=name")


async def test_large_lists_by_pages(run: Run, kubectl: Kubectl) -> None:
    """A list that kubectl requests in pages is complete."""
    objects = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"m{n}"}} for n in range(7)
    ]
    kubectl.apply(*objects)
    found = await run.kubectl("get", "configmaps", "--chunk-size=2", "--output=name")
    assert sum(line.startswith("configmap/m") for line in found.splitlines()) == 7
    assert "NAME" in await run.kubectl("get", "configmaps", "--chunk-size=3")


async def _play(run: Run, *tasks: Json) -> list[Json]:
    """Run tasks in a play, as a role would, and return their results."""
    home = run.kubeconfig.parent
    names = [f"result{number}" for number in range(len(tasks))]
    keep = {"content": f"{{{{ [{', '.join(names)}] | to_json }}}}", "dest": str(home / "results")}
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [
            *(task | {"register": name} for task, name in zip(tasks, names, strict=True)),
            {"ansible.builtin.copy": keep},
        ],
    }
    (home / "play.yml").write_text(json.dumps([play]))
    status, out, err = await run.done(Path(sys.executable).parent / "ansible-playbook", "play.yml")
    assert status == 0, out + err
    results: list[Json] = json.loads((home / "results").read_text())
    return results
