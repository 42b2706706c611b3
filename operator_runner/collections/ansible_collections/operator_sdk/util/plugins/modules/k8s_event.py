#!/usr/bin/python
# ruff: noqa: EXE001 (Ansible reads the first line, nobody executes the file)
"""Ansible module: emit a Kubernetes Event about an object."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import AnsibleK8SModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
from ansible_collections.operator_sdk.util.plugins.module_utils.api import (
    DynamicApiError,
    ForbiddenError,
    NotFoundError,
    TaskError,
    api_error,
    api_message,
    find_resource,
)

_PATCHES = {
    "json": "application/merge-patch+json",
    "merge": "application/merge-patch+json",
    "strategic-merge": "application/strategic-merge-patch+json",
}
_COMPONENT = {"component": {"type": "str", "required": True}}
_OBJECT = {name: {"type": "str", "required": True} for name in ("apiVersion", "kind", "name")}
ARGUMENTS = {
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "name": {"type": "str", "required": True},
    "namespace": {"type": "str", "required": True},
    "merge_type": {"type": "list", "elements": "str", "choices": list(_PATCHES)},
    "message": {"type": "str", "required": True},
    "reason": {"type": "str", "required": True},
    "reportingComponent": {"type": "str"},
    "type": {"type": "str", "choices": ["Normal", "Warning"]},
    "appendTimestamp": {"type": "bool"},
    "source": {"type": "dict", "options": _COMPONENT},
    "involvedObject": {"type": "dict", "options": {**_OBJECT, "namespace": {"type": "str"}}},
}


def find_event(events: Any, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the existing Event, None without one."""
    try:
        found: dict[str, Any] = events.get(
            name=params["name"], namespace=params["namespace"]
        ).to_dict()
    except NotFoundError:
        return None
    return found


def involved(client: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the reference to the object; without uid if it does not exist or cannot be read."""
    reference = {key: value for key, value in given.items() if value is not None}
    try:
        resource = find_resource(client, given["apiVersion"], given["kind"])
        metadata = resource.get(name=given["name"], namespace=given["namespace"]).metadata
    except (TaskError, NotFoundError, ForbiddenError):
        return reference
    return {**reference, "uid": metadata.uid, "resourceVersion": metadata.resourceVersion}


def event_of(
    params: dict[str, Any], prior: dict[str, Any] | None, reference: dict[str, Any] | None, now: str
) -> dict[str, Any]:
    """Return the Event to write, counted up from `prior` if that has the same reason."""
    again = prior if prior is not None and prior.get("reason") == params["reason"] else {}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": params["name"], "namespace": params["namespace"]},
        "involvedObject": reference,
        "reason": params["reason"],
        "message": params["message"],
        "type": params["type"],
        "source": params["source"],
        "reportingComponent": params["reportingComponent"],
        "count": (again.get("count") or 0) + 1,
        "firstTimestamp": again.get("firstTimestamp") or now,
        "lastTimestamp": now,
    }
    return {key: value for key, value in event.items() if value is not None}


def present(client: Any, params: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Write the Event; return the module's result."""
    now = datetime.now(UTC)
    if params["appendTimestamp"]:
        # As a name of an object can have it: no colons, no spaces, no capitals.
        params = {**params, "name": f"{params['name']}.{now:%Y%m%dt%H%M%S.%f}"}
    events = find_resource(client, "v1", "Event")
    prior = find_event(events, params)
    given = params["involvedObject"]
    reference = involved(client, given) if given else None
    event = event_of(params, prior, reference, f"{now:%Y-%m-%dT%H:%M:%SZ}")
    if dry_run:
        return {"changed": True, "result": event}
    if prior is None:
        written = events.create(body=event, namespace=params["namespace"])
    else:
        patch = _PATCHES[(params["merge_type"] or ["strategic-merge"])[0]]
        written = events.patch(body=event, namespace=params["namespace"], content_type=patch)
    result = written.to_dict()
    return {"changed": result != prior, "result": result}


def absent(client: Any, params: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Delete the Event; return the module's result."""
    events = find_resource(client, "v1", "Event")
    prior = find_event(events, params)
    if prior is not None and not dry_run:
        events.delete(name=params["name"], namespace=params["namespace"])
    return {"changed": prior is not None, "result": {}}


def main() -> None:
    """Run the module."""
    module = AnsibleK8SModule(
        argument_spec={**deepcopy(AUTH_ARG_SPEC), **ARGUMENTS}, supports_check_mode=True
    )
    act, verb = (present, "create") if module.params["state"] == "present" else (absent, "delete")
    try:
        result = act(get_api_client(module), module.params, dry_run=module.check_mode)
    except (CoreException, TaskError) as error:
        module.fail_json(msg=str(error))
    except DynamicApiError as error:
        message = f"Unable to {verb} event: {api_message(error)}"
        module.fail_json(msg=message, error=api_error(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
