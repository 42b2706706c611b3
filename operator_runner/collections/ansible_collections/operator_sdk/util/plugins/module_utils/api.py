"""The Kubernetes API as the modules of this collection use it: kinds by name, errors in words."""

from __future__ import annotations

import json
from typing import Any

try:
    from kubernetes.dynamic.exceptions import (
        ConflictError,
        DynamicApiError,
        ForbiddenError,
        NotFoundError,
        ResourceNotFoundError,
        ResourceNotUniqueError,
    )
except ImportError:
    # AnsibleK8SModule reports the missing library, with what to install, before any use.
    ConflictError = DynamicApiError = ForbiddenError = NotFoundError = Exception
    ResourceNotFoundError = ResourceNotUniqueError = Exception

__all__ = ["ConflictError", "DynamicApiError", "ForbiddenError", "NotFoundError"]


class TaskError(Exception):
    """Failure of the task; `details` are added to its result beside the message."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


def api_message(error: Any) -> str:
    """Return the `message` of the API server's Status, without headers."""
    try:
        return str(json.loads(error.body)["message"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(error)


def api_error(error: Any) -> dict[str, Any]:
    """Return the fields of a DynamicApiError for a result."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    return {
        "status": error.status,
        "reason": error.reason,
        "body": body,
        "message": api_message(error),
    }


def find_resource(client: Any, api_version: str, kind: str) -> Any:
    """Return the client's resource of a kind, which may be given by any of its names."""
    try:
        return client.resource(kind, api_version)
    except (ResourceNotFoundError, ResourceNotUniqueError) as error:
        raise TaskError(
            f"Failed to find exact match for {api_version}.{kind} by "
            "[kind, name, singularName, shortNames]"
        ) from error


def find_with_status(client: Any, api_version: str, kind: str) -> Any:
    """Return the client's resource; TaskError if the kind or its status does not exist."""
    resource = find_resource(client, api_version, kind)
    if "status" not in (resource.subresources or ()):
        # The discovery cache may be older than the definition of the kind.
        client.resources.invalidate_cache()
        resource = find_resource(client, api_version, kind)
    if "status" not in (resource.subresources or ()):
        raise TaskError(
            f"Resource {api_version}.{kind} does not support the status subresource",
            error="add `subresources: {status: {}}` to this version in its"
            " CustomResourceDefinition",
        )
    return resource


def read(resource: Any, name: str, namespace: str | None) -> dict[str, Any]:
    """Return the live object; TaskError if it does not exist or cannot be read."""
    key = {"name": name, "namespace": namespace}
    try:
        found = resource.get(**key)
    except ForbiddenError as error:
        # A user who may not read the resource may still be allowed to read and patch its status.
        found = _read_by_status(resource, key, error)
    except DynamicApiError as error:
        raise _unread(error) from error
    instance: dict[str, Any] = found.to_dict()
    return instance


def _read_by_status(resource: Any, key: dict[str, Any], refusal: Exception) -> Any:
    try:
        return resource.status.get(**key)
    except ForbiddenError:
        raise _unread(refusal) from refusal
    except DynamicApiError as error:
        raise _unread(error) from error


def _unread(error: Exception) -> TaskError:
    return TaskError("Failed to retrieve requested object", error=api_error(error))
