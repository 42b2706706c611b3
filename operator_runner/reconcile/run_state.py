"""Identify what a run does, so that a Job is adopted only by a run that would do the same. Pure."""

from __future__ import annotations

import hashlib
import json

from operator_runner.core.model import Json, RunContent, Watch, desired_state, uid_of
from operator_runner.reconcile.request_annotations import HANDLED_ANNOTATION, annotations_of


def state_key(
    body: Json, watch: Watch, content: RunContent, *, cleanup: bool, schedule_time: str
) -> str:
    """Return a digest of the resource as users write it, and of what is run for it.

    Its status is left out, and what the operator itself answers.
    """
    annotations = annotations_of(body)
    parts = {
        "uid": uid_of(body),
        "state": desired_state(body),
        "labels": body["metadata"].get("labels"),
        "annotations": {k: v for k, v in annotations.items() if k != HANDLED_ANNOTATION},
        "content": str(content.path),
        "vars": dict(watch.vars),
        "cleanup": cleanup,
        "schedule": schedule_time,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
