#!/usr/bin/python
# ruff: noqa: EXE001 (Ansible reads the first line, nobody executes the file)
"""Ansible module: write the status of a custom resource, only where it differs."""

from __future__ import annotations

DOCUMENTATION = """
module: k8s_status
short_description: Set the status of a Kubernetes resource
description:
  - Sets fields and conditions of the status of a custom resource through its status subresource.
  - Writes nothing, and reports no change, when the resource already says so.
author:
  - operator-runner authors
options:
  api_version:
    description: Group and version of the resource.
    type: str
    default: v1
    aliases: [api, version]
  kind:
    description: Kind of the resource.
    type: str
    required: true
  name:
    description: Name of the resource.
    type: str
    required: true
  namespace:
    description: Namespace of the resource; leave it out for one that is cluster-scoped.
    type: str
  status:
    description:
      - Fields to set. They are merged into the status; a null removes a field.
    type: dict
  conditions:
    description:
      - Conditions to set in C(status.conditions), merged with those that are there by C(type).
      - Fields of each are C(type) and C(status) ("True", "False" or "Unknown"), both required,
        and C(reason) (one CamelCase word), C(message), C(observedGeneration),
        C(lastHeartbeatTime), C(lastTransitionTime) (RFC 3339 times).
      - Where C(lastTransitionTime) is not given it is kept while C(status) stays the same.
    type: list
    elements: dict
  replace:
    description: Set the whole status, so that fields and conditions which are not given go away.
    type: bool
    default: false
    aliases: [force]
  replace_lists:
    description:
      - A list in C(status) must be equal to the given one. Otherwise a list that holds all the
        given items is left alone. C(conditions) are merged by C(type) in either case.
    type: bool
    default: false
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
requirements:
  - python >= 3.11
  - kubernetes >= 24.2.0
"""

EXAMPLES = """
- name: Say how many nodes answer
  operator_sdk.util.k8s_status:
    api_version: cache.example.com/v1
    kind: Memcached
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status:
      nodes: 3

- name: Set a condition
  operator_sdk.util.k8s_status:
    api_version: cache.example.com/v1
    kind: Memcached
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    conditions:
      - type: Available
        status: "False"
        reason: PingFailed
        message: the service did not answer a ping
"""

RETURN = """
result:
  description: The resource, as it was written or, when nothing was to be written, as it is.
  returned: success
  type: dict
"""

import json
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.core import AnsibleK8SModule
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
from ansible_collections.operator_sdk.util.plugins.module_utils.status import (
    checked_conditions,
    contains,
    merge_conditions,
    replace_conditions,
)

try:
    from kubernetes.dynamic.exceptions import (
        ConflictError,
        DynamicApiError,
        ForbiddenError,
        ResourceNotFoundError,
        ResourceNotUniqueError,
    )
except ImportError:
    # AnsibleK8SModule reports the missing library, with what to install, before any use.
    ConflictError = DynamicApiError = ForbiddenError = Exception
    ResourceNotFoundError = ResourceNotUniqueError = Exception

# Each attempt starts from a fresh read, so each conflict means that another writer got through.
ATTEMPTS = 10


def api_message(error: Any) -> str:
    """Return what the API server says about the error, without headers and braces."""
    try:
        return str(json.loads(error.body)["message"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(error)


def find_resource(client: Any, api_version: str, kind: str) -> Any:
    """Return the client's resource; CoreException if there is none or it has no status."""
    try:
        resource = client.resource(kind, api_version)
        if "status" not in resource.subresources:
            # What was discovered may be older than the definition of the kind.
            client.resources.invalidate_cache()
            resource = client.resource(kind, api_version)
    except (ResourceNotFoundError, ResourceNotUniqueError) as error:
        raise CoreException(
            f"Failed to find exact match for {api_version}.{kind} by "
            "[kind, name, singularName, shortNames]"
        ) from error
    if "status" not in resource.subresources:
        raise CoreException(
            f"Resource {api_version}.{kind} does not support the status subresource; "
            "add `subresources: {status: {}}` to this version in its CustomResourceDefinition"
        )
    return resource


def read(resource: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Return the resource as it is now."""
    key = {"name": params["name"], "namespace": params["namespace"]}
    try:
        found = resource.get(**key)
    except ForbiddenError as error:
        # Who may not read the resource may still be allowed to read and report its status.
        found = _read_by_status(resource, key, error)
    except DynamicApiError as error:
        raise CoreException(f"Failed to retrieve requested object: {api_message(error)}") from error
    instance: dict[str, Any] = found.to_dict()
    return instance


def _read_by_status(resource: Any, key: dict[str, str], refusal: Exception) -> Any:
    try:
        return resource.status.get(**key)
    except ForbiddenError:
        message = f"Failed to retrieve requested object: {api_message(refusal)}"
        raise CoreException(message) from refusal
    except DynamicApiError as error:
        raise CoreException(f"Failed to retrieve requested object: {api_message(error)}") from error


def wanted_status(params: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]] | None]:
    """Return the fields and the conditions that are asked for; None if no conditions are."""
    fields = dict(params["status"] or {})
    inside = fields.pop("conditions", None)
    if inside is not None and params["conditions"] is not None:
        raise CoreException(
            "You cannot specify conditions in both the 'status' and 'conditions' parameters"
        )
    given = inside if params["conditions"] is None else params["conditions"]
    if given is None:
        return fields, None
    try:
        return fields, checked_conditions(given)
    except (ValueError, AttributeError, TypeError) as error:
        raise CoreException(f"The specified conditions failed to validate: {error}") from error


def replaced(resource: Any, instance: dict[str, Any], params: dict[str, Any], now: str) -> Any:
    """Return the call that sets the whole status, or None if it is set already."""
    status, conditions = wanted_status(params)
    old = instance.get("status") or {}
    if conditions is not None:
        status["conditions"] = replace_conditions(old.get("conditions") or [], conditions, now)
    if status == old:
        return None
    body = {**deepcopy(instance), "status": status}
    return lambda: resource.status.replace(body=body, namespace=params["namespace"])


def merged(resource: Any, instance: dict[str, Any], params: dict[str, Any], now: str) -> Any:
    """Return the call that sets the fields which differ, or None if none does."""
    status, conditions = wanted_status(params)
    old = instance.get("status") or {}
    patch = {
        field: value
        for field, value in status.items()
        if not contains(old.get(field), value, whole_lists=params["replace_lists"])
    }
    if conditions is not None:
        before = old.get("conditions") or []
        after = merge_conditions(before, conditions, now)
        if after != before:
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
    """Bring the status to what is asked for; return the module's result."""
    plan = replaced if params["replace"] else merged
    for _ in range(ATTEMPTS):
        instance = read(resource, params)
        write = plan(resource, instance, params, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        if write is None or dry_run:
            return {"changed": write is not None, "result": instance}
        try:
            return {"changed": True, "result": write().to_dict()}
        except ConflictError:
            continue
        except DynamicApiError as error:
            raise CoreException(f"Failed to write the status: {api_message(error)}") from error
    raise CoreException(
        f"Failed to write the status: the resource changed under each of {ATTEMPTS} attempts; "
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
            "conditions": {"type": "list", "elements": "dict"},
            "replace": {"type": "bool", "default": False, "aliases": ["force"]},
            "replace_lists": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        wanted_status(params)
        resource = find_resource(get_api_client(module), params["api_version"], params["kind"])
        result = write_status(resource, params, dry_run=module.check_mode)
    except CoreException as error:
        module.fail_from_exception(error)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
