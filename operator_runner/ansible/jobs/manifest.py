"""The Job and the Secret of a run. Pure.

The Pod template comes from the author of the operator only. Of the resource, names, labels and
annotations are used; its fields reach the play as variables.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from operator_runner.core.model import ANNOTATION_DOMAIN, GVK, JobTemplate, Json, ObjectRef

CONTAINER = "run"
"""Name of the container that runs the play; the template may have settings for it."""
UID_LABEL = f"{ANNOTATION_DOMAIN}/resource-uid"
STATE_ANNOTATION = f"{ANNOTATION_DOMAIN}/run-state"
_RESOURCE_ANNOTATION = f"{ANNOTATION_DOMAIN}/resource"
_API_VERSION_ANNOTATION = f"{ANNOTATION_DOMAIN}/resource-api-version"
_SECRET_DIR, _DATA_DIR = "/var/run/operator-runner.dev", "/runner"
_MANAGER = "operator-runner"
_DEADLINE_MARGIN = timedelta(minutes=1)
"""The operator ends a run at its deadline; without an operator, Kubernetes does so later."""
_PREFIX_CHARACTERS = 40
_STOP_SECONDS = 10


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run that becomes a Job. `state` identifies what it does, see `RunRequest.state_key`."""

    ref: ObjectRef
    uid: str
    run_id: str
    state: str
    timeout: timedelta | None


def job_name(ref: ObjectRef, run_id: str) -> str:
    """Return the name of the Job and its Secret: the resource, as a DNS label, and the run."""
    text = re.sub(r"[^a-z0-9]+", "-", f"{ref.gvk.kind}-{ref.name}".lower())
    return f"{text[:_PREFIX_CHARACTERS].strip('-')}-{run_id[:16]}"


def job(run: JobRun, template: JobTemplate) -> Json:
    """Return the Job of a run."""
    name = job_name(run.ref, run.run_id)
    labels = {"app.kubernetes.io/managed-by": _MANAGER, UID_LABEL: run.uid}
    spec: Json = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": int(template.ttl.total_seconds()),
        "template": _pod_template(template, name, labels),
    }
    if run.timeout is not None:
        deadline = run.timeout + _DEADLINE_MARGIN
        spec["activeDeadlineSeconds"] = max(int(deadline.total_seconds()), 1)
    annotations = {
        _RESOURCE_ANNOTATION: str(run.ref),
        _API_VERSION_ANNOTATION: run.ref.gvk.api_version,
        f"{ANNOTATION_DOMAIN}/run": run.run_id,
        STATE_ANNOTATION: run.state,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": spec,
    }


def resources_of(job_body: Json, gvks: Iterable[GVK]) -> list[ObjectRef]:
    """Return what the resource of a Job may be, of these kinds.

    Jobs of earlier versions of the operator have its kind without apiVersion.
    """
    annotations = job_body["metadata"].get("annotations") or {}
    kind, _, path = annotations.get(_RESOURCE_ANNOTATION, "").partition(" ")
    api_version = annotations.get(_API_VERSION_ANNOTATION)
    namespace, _, name = path.rpartition("/")
    return [
        ObjectRef(gvk, namespace, name)
        for gvk in gvks
        if name and gvk.kind == kind and api_version in {None, gvk.api_version}
    ]


def secret(job_body: Json, files: Mapping[str, bytes]) -> Json:
    """Return the Secret of a Job that exists, which it is deleted with."""
    metadata = job_body["metadata"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": metadata["name"],
            "labels": metadata["labels"],
            "ownerReferences": [owner],
        },
        "immutable": True,
        "data": {name: base64.b64encode(content).decode() for name, content in files.items()},
    }


def template_digest(template: JobTemplate) -> str:
    """Return a digest of a template: a Job of another one is not adopted."""
    body = _pod_template(template, "", {})
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _pod_template(template: JobTemplate, secret_name: str, labels: Mapping[str, str]) -> Json:
    pod: Json = copy.deepcopy(dict(template.pod))
    metadata: Json = dict(pod.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec: Json = dict(pod.get("spec") or {})
    # By default the Pod has no credentials but those of the run.
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("terminationGracePeriodSeconds", _STOP_SECONDS)
    spec["restartPolicy"] = "Never"
    if template.service_account_name:
        spec["serviceAccountName"] = template.service_account_name
    if template.node_selector:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **template.node_selector}
    if template.tolerations:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *template.tolerations]
    own_volumes = [
        {"name": "operator-runner-secret", "secret": {"secretName": secret_name}},
        {"name": "operator-runner-data", "emptyDir": {}},
    ]
    spec["volumes"] = [*(spec.get("volumes") or ()), *template.volumes, *own_volumes]
    containers = list(spec.get("containers") or ())
    given: Json = next((each for each in containers if each.get("name") == CONTAINER), {})
    others = [each for each in containers if each is not given]
    spec["containers"] = [_container(template, given), *others]
    return {"metadata": metadata, "spec": spec}


def _container(template: JobTemplate, given: Mapping[str, Any]) -> Json:
    mounts = [
        {"name": "operator-runner-secret", "mountPath": _SECRET_DIR, "readOnly": True},
        {"name": "operator-runner-data", "mountPath": _DATA_DIR},
    ]
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container: Json = {
        "securityContext": security,
        **given,
        "name": CONTAINER,
        "image": template.image,
        # No secret is among the arguments, which all users with access to Pods can read.
        "command": ["python3", f"{_SECRET_DIR}/worker.py", _SECRET_DIR, _DATA_DIR],
        "args": [],
        "volumeMounts": [*(given.get("volumeMounts") or ()), *template.volume_mounts, *mounts],
    }
    if template.resources:
        container["resources"] = dict(template.resources)
    return container
