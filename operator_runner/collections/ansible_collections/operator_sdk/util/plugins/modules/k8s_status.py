#!/usr/bin/python
# ruff: noqa: EXE001 (Ansible reads the first line, nobody executes the file)
"""Ansible module: write the status of a custom resource, only where it differs."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import AnsibleK8SModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
from ansible_collections.operator_sdk.util.plugins.module_utils.api import (
    ConflictError,
    DynamicApiError,
    TaskError,
    api_error,
    api_message,
    find_with_status,
    read,
)
from ansible_collections.operator_sdk.util.plugins.module_utils.status import (
    BadConditionError,
    are_conditions,
    checked_conditions,
    contains,
    merge_conditions,
    replace_conditions,
)

# Each attempt starts from a fresh read, so each conflict means that another writer got through.
ATTEMPTS = 10
TIMES = ("lastHeartbeatTime", "lastTransitionTime")
CONDITION = {
    "type": {"type": "str", "required": True},
    "status": {"type": "str", "required": True, "choices": ["True", "False", "Unknown"]},
    "observedGeneration": {"type": "int"},
    **{name: {"type": "str"} for name in ("reason", "message", *TIMES)},
}


def wanted_status(params: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]] | None]:
    """Return the wanted fields and conditions; None if no conditions are given."""
    fields = dict(params["status"] or {})
    try:
        given = checked_conditions(params["conditions"] or [])
    except BadConditionError as error:
        message = "The specified conditions failed to validate"
        raise TaskError(message, error=str(error), at=error.at) from error
    if given and fields.get("conditions"):
        raise TaskError(
            "You cannot specify conditions in both the 'status' and 'conditions' parameters"
        )
    if given:
        fields.pop("conditions", None)
        return fields, given
    if are_conditions(fields.get("conditions")):
        return fields, fields.pop("conditions")
    return fields, None


def present_status(instance: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the status of a resource and its conditions; what is malformed counts as absent."""
    status = instance.get("status")
    status = status if isinstance(status, dict) else {}
    conditions = status.get("conditions")
    return status, [
        each
        for each in (conditions if isinstance(conditions, list) else ())
        if isinstance(each, dict)
    ]


def replaced(resource: Any, instance: dict[str, Any], params: dict[str, Any], now: str) -> Any:
    """Return the call that sets the whole status, or None if it is set already."""
    status, conditions = wanted_status(params)
    old, before = present_status(instance)
    if conditions is not None:
        status["conditions"] = replace_conditions(before, conditions, now)
    if status == old:
        return None
    body = {**deepcopy(instance), "status": status}
    return lambda: resource.status.replace(body=body, namespace=params["namespace"])


def merged(resource: Any, instance: dict[str, Any], params: dict[str, Any], now: str) -> Any:
    """Return the call that sets the fields which differ, or None if none does."""
    status, conditions = wanted_status(params)
    old, before = present_status(instance)
    patch = {
        field: value
        for field, value in status.items()
        if not contains(old.get(field), value, whole_lists=params["replace_lists"])
    }
    if conditions is not None:
        after = merge_conditions(before, conditions, now)
        if after != (old.get("conditions") or []):
            patch["conditions"] = after
    if not patch:
        return None
    # A merge patch replaces lists, so it must not be built on conditions that have since changed:
    # the resource version makes the API server refuse it then.
    version = instance["metadata"]["resourceVersion"]
    return lambda: resource.status.patch(
        body={"metadata": {"resourceVersion": version}, "status": patch},
        name=params["name"],
        namespace=params["namespace"],
        content_type="application/merge-patch+json",
    )


def write_status(resource: Any, params: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Write the wanted status; return the module's result."""
    plan = replaced if params["replace"] else merged
    for _ in range(ATTEMPTS):
        instance = read(resource, params["name"], params["namespace"])
        write = plan(resource, instance, params, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        if write is None or dry_run:
            return {"changed": write is not None, "result": instance}
        try:
            return {"changed": True, "result": write().to_dict()}
        except ConflictError:
            continue
        except DynamicApiError as error:
            message = f"Failed to replace status: {api_message(error)}"
            raise TaskError(message, error=api_error(error)) from error
    raise TaskError(
        f"Failed to replace status: the resource changed under each of {ATTEMPTS} attempts; "
        "look for another controller that writes it without end"
    )


def main() -> None:
    """Run the module."""
    module = AnsibleK8SModule(
        argument_spec={
            **deepcopy(AUTH_ARG_SPEC),
            "api_version": {"type": "str", "default": "v1", "aliases": ["api", "version"]},
            "kind": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "namespace": {"type": "str"},
            "status": {"type": "dict"},
            "conditions": {"type": "list", "elements": "dict", "options": CONDITION},
            "replace": {"type": "bool", "default": False, "aliases": ["force"]},
            "replace_lists": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        wanted_status(params)
        client = get_api_client(module)
        resource = find_with_status(client, params["api_version"], params["kind"])
        result = write_status(resource, params, dry_run=module.check_mode)
    except TaskError as error:
        module.fail_json(msg=str(error), **error.details)
    except CoreException as error:
        module.fail_from_exception(error)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
