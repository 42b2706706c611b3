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
from tests.support.operator import REPOSITORY

COLLECTIONS = REPOSITORY / "operator_runner" / "collections"
ROLE = FOLDER / "etcd/roles/etcd"
UID = "u"
VARIABLES = {
    "ansible_operator_meta": {"name": "db", "namespace": "team"},
    "etcd_resource": "{{ item.resource }}",
    "etcd_pods": "{{ item.pods | operator_sdk.util.owned_by(item.resource) | etcd_pods }}",
    "etcd_listed": "{{ {'rc': 0 if item.members else 1} }}",
    "etcd_members": "{{ item.members | etcd_members(etcd_pods) }}",
    "etcd_claims": {"resources": "{{ item.claims }}"},
    "etcd_now": {"step": "promote"},
}


def evaluated(tmp_path: Path, expression: str, situations: list[Json]) -> list[Any]:
    """Return the value of a variable of the role in each situation."""
    playbook, file, variables = (tmp_path / name for name in ("play.json", "out", "vars.json"))
    collect = {"found": f"{{{{ found | default([]) + [{expression}] }}}}"}
    tasks: list[Json] = [
        {
            "ansible.builtin.set_fact": collect,
            "vars": VARIABLES,
            "loop": "{{ situations }}",
            "loop_control": {"label": ""},
        },
        {"ansible.builtin.copy": {"content": "{{ found | to_json }}", "dest": str(file)}},
    ]
    files = [str(ROLE / folder / "main.yml") for folder in ("defaults", "vars")]
    play = {"hosts": "localhost", "gather_facts": False, "vars_files": files, "tasks": tasks}
    playbook.write_text(json.dumps([play]))
    variables.write_text(json.dumps({"situations": situations}))
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "--connection=local", f"--extra-vars=@{variables}", playbook],
        env=os.environ
        | {
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_FILTER_PLUGINS": str(ROLE / "filter_plugins"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return list(json.loads(file.read_text()))


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


def test_each_situation_has_its_step(tmp_path: Path) -> None:
    """A majority counts as lost if its Pods were deleted and none has answered for some time."""
    ready, two = [pod(0), pod(1), pod(2)], [member(0), member(1)]
    alone = [pod(0, ready=False)]
    voters = [*two, member(2)]
    learner = [*two, member(2, learner=True)]
    expected = {
        "all is well": (situation(3, ready, voters), "rest"),
        "one killed": (situation(3, ready[:2], voters), "replace"),
        "a learner": (situation(3, [*ready[:2], pod(2, ready=False)], learner), "promote"),
        "one too many": (situation(2, ready, voters), "shrink"),
        "one too few": (situation(3, ready[:2], two), "grow"),
        "a Pod that is not a member": (situation(2, ready, two), "delete_former_member"),
        "two of three killed, just now": (situation(3, alone), "wait"),
        "two of three killed, for a minute": (situation(3, alone, silent=60), "fail"),
        "one of two killed, for a minute": (situation(2, alone, silent=60, voters=2), "fail"),
        "one of one that is slow": (situation(1, alone, silent=60, voters=1), "wait"),
        "no leader, all Pods are there": (situation(3, ready, silent=60), "wait"),
        "all killed": (situation(3, []), "fail"),
        "all killed, with volumes": (situation(3, [], claims=(0, 1, 2)), "revive"),
        "the first one killed": (situation(3, [], phase="Creating", voters=0), "seed"),
    }
    found = evaluated(tmp_path, "etcd_step.step", [case for case, _ in expected.values()])
    assert dict(zip(expected, found, strict=True)) == {
        name: step for name, (_, step) in expected.items()
    }


def test_a_promoted_learner_is_a_voter_at_once(tmp_path: Path) -> None:
    """If one of two dies before the next pass, the lost majority is noticed."""
    listed = [member(0), member(1, learner=True)]
    promoted = situation(2, [pod(0), pod(1, ready=False)], listed, voters=1)
    assert evaluated(tmp_path, "etcd_report.voters", [promoted]) == [2]
