"""The step that the role of the example etcd chooses, by what etcd and Kubernetes show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.examples import FOLDER
from tests.support.kubectl import Json

ROLE = FOLDER / "etcd/roles/etcd"
UID = "u"
PLAYBOOK = [
    {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml")],
        "tasks": [
            {
                "ansible.builtin.set_fact": {
                    "steps": "{{ steps | default([]) + [[etcd_step.step, etcd_report.voters]] }}"
                },
                "vars": {
                    "ansible_operator_meta": {"name": "db", "namespace": "team"},
                    "etcd_resource": "{{ item.resource }}",
                    "etcd_pods": f"{{{{ item.pods | etcd_pods('{UID}') }}}}",
                    "etcd_listed": "{{ {'rc': 0 if item.members else 1} }}",
                    "etcd_members": "{{ item.members | etcd_members(etcd_pods) }}",
                    "etcd_claims": {"resources": "{{ item.claims }}"},
                    "etcd_now": "{{ etcd_step }}",
                },
                "loop": "{{ situations }}",
                "loop_control": {"label": "{{ item.name }}"},
            },
            {"ansible.builtin.copy": {"content": "{{ steps | to_json }}", "dest": "{{ file }}"}},
        ],
    }
]


def steps(tmp_path: Path, situations: dict[str, Json]) -> dict[str, list[Any]]:
    """Return the step and the reported number of voters of each situation, by its name."""
    playbook, file, variables = (tmp_path / name for name in ("play.json", "out", "vars.json"))
    playbook.write_text(json.dumps(PLAYBOOK))
    listed = [{"name": name, **situation} for name, situation in situations.items()]
    variables.write_text(json.dumps({"situations": listed, "file": str(file)}))
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "--connection=local", f"--extra-vars=@{variables}", playbook],
        env=os.environ | {"ANSIBLE_FILTER_PLUGINS": str(ROLE / "filter_plugins")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(zip(situations, json.loads(file.read_text()), strict=True))


def pod(number: int, *, ready: bool = True) -> Json:
    image = "operator-runner.local/etcd:v3.6.8"
    return {
        "metadata": {"name": f"db-{number:04}", "ownerReferences": [{"uid": UID}]},
        "spec": {"containers": [{"image": image}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "etcd", "image": image, "restartCount": 0}],
        },
    }


def member(number: int, *, learner: bool = False) -> Json:
    name = f"db-{number:04}"
    urls = [f"http://{name}.db.team.svc:2380"]
    return {"ID": number + 1, "name": name, "peerURLs": urls, "isLearner": learner}


def situation(
    size: int,
    pods: list[Json],
    members: list[Json] | None = None,
    *,
    claims: tuple[int, ...] = (),
    silent: int = 0,
    **status: Any,
) -> Json:
    """Describe a cluster that has run; without members etcd does not answer."""
    since = datetime.now(UTC) - timedelta(seconds=silent)
    status = {"phase": "Running", "currentVersion": "3.6.8", "voters": 3} | status
    if silent:
        status["silentSince"] = f"{since:%Y-%m-%dT%H:%M:%SZ}"
    spec: Json = {"size": size}
    if claims:
        spec["pod"] = {"persistentVolumeClaimSpec": {"accessModes": ["ReadWriteOnce"]}}
    return {
        "resource": {"metadata": {"uid": UID}, "spec": spec, "status": status},
        "pods": pods,
        "members": members or [],
        "claims": [{"metadata": {"name": f"db-{number:04}"}} for number in claims],
    }


def test_the_step_of_each_situation(tmp_path: Path) -> None:
    """A majority counts as lost if its Pods are gone and nobody has answered for some time."""
    ready, two, three = [pod(0), pod(1), pod(2)], [member(0), member(1)], range(3)
    alone = [pod(0, ready=False)]
    voters = [member(number) for number in three]
    learner = [*two, member(2, learner=True)]
    expected = {
        "all is well": (situation(3, ready, voters), "rest", 3),
        "one killed": (situation(3, ready[:2], voters), "replace", 3),
        "a learner": (situation(3, [*ready[:2], pod(2, ready=False)], learner), "promote", 3),
        "one too many": (situation(2, ready, voters), "shrink", 3),
        "one too few": (situation(3, ready[:2], two), "grow", 2),
        "two of three killed, just now": (situation(3, alone), "wait", 3),
        "two of three killed, for a minute": (situation(3, alone, silent=60), "fail", 3),
        "one of two killed, for a minute": (situation(2, alone, silent=60, voters=2), "fail", 2),
        "one of one that is slow": (situation(1, alone, silent=60, voters=1), "wait", 1),
        "no leader, all Pods are there": (situation(3, ready, silent=60), "wait", 3),
        "all killed": (situation(3, []), "fail", 3),
        "all killed, with volumes": (situation(3, [], claims=(0, 1, 2)), "revive", 3),
        "created anew while the first one starts": (
            situation(3, [], phase="Creating", voters=0),
            "seed",
            0,
        ),
    }
    found = steps(tmp_path, {name: case for name, (case, *_) in expected.items()})
    assert found == {name: [step, count] for name, (_, step, count) in expected.items()}
