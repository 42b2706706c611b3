"""The file of `--record-requests`: the permissions that the requests of roles have needed so far.

It contains verbs, resources and namespaces, and names where they are the same for every resource;
no content of requests or responses. `operator-runner rbac` reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import structlog
import yaml
from aiohttp import web

from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, ConfigError
from operator_runner.core.model import Json
from operator_runner.kube.api import is_watch
from operator_runner.kube.discovery import Discovery
from operator_runner.proxy.bodies import decode_json
from operator_runner.proxy.request_info import (
    ANY,
    OWN,
    Permission,
    RequestInfo,
    Subject,
    impersonation_permissions,
    owners_with_blocked_deletion,
    permissions_for_request,
    permissions_in_body,
)
from operator_runner.proxy.run_tokens import Grant

_HEADER = (
    "# Permissions that roles needed, from --record-requests; read by `operator-runner rbac`.\n"
)
_MAX_ENTRIES = 1000
"""A role that needs more uses kinds that its resources name, and needs a wildcard."""
_MAX_NAMES, _MAX_BOUND, _MAX_NAMESPACES = 3, 10, 10
"""More different names (also of roles that are bound) or namespaces are recorded as any."""
_TEXTS = tuple(field.name for field in fields(Permission) if field.name not in {"verb", "name"})
_LISTS = ("names", "verbs")

_log = structlog.get_logger(__name__)


class PermissionLog:
    """The permissions recorded so far; each new one is written at once."""

    def __init__(self, file: Path) -> None:
        """Read the file if it exists. Raises ConfigError if it cannot be read or written."""
        self._file = file
        self._permissions = set(read(file)) if file.exists() else set()
        self._failures = Deduplicator()
        try:
            self._write()
        except OSError as error:
            raise ConfigError(
                f"--record-requests: cannot write {file}: {error.strerror};"
                " name a file in a directory that the operator can write to, such as /tmp"
            ) from error

    def add(self, permissions: Iterable[Permission]) -> None:
        """Record permissions. Never raises: a failed write is logged, once."""
        recorded = self._permissions
        for permission in permissions:
            recorded = add_permission(recorded, permission)
        if recorded == self._permissions:
            return
        if len(recorded) > _MAX_ENTRIES:
            self._warn(f"the limit of {_MAX_ENTRIES} entries is reached")
            return
        self._permissions = recorded
        try:
            self._write()
        except OSError as error:
            self._warn(str(error))

    def _write(self) -> None:
        # Atomically: the file is read while the operator runs.
        beside = self._file.with_name(f".{self._file.name}.new")
        beside.write_text(encode(self._permissions))
        beside.replace(self._file)

    def _warn(self, error: str) -> None:
        if self._failures.is_new(error):
            _log.warning("Cannot record requests", file=str(self._file), error=error)


def add_permission(permissions: set[Permission], permission: Permission) -> set[Permission]:
    """Return `permissions` and `permission`; too many names or namespaces become any."""
    scopeless = _without_scope(permission)
    same = {
        one
        for one in permissions
        if one.resource == permission.resource and _without_scope(one) == scopeless
    }
    if any(_covers(one, permission) for one in same):
        return permissions
    names = {one.name for one in same if one.namespace == permission.namespace}
    if len(names | {permission.name}) > (_MAX_BOUND if permission.verb == "bind" else _MAX_NAMES):
        permission = replace(permission, name="")
    if permission.namespace not in {"", OWN}:
        namespaces = {one.namespace for one in same} - {"", OWN}
        if len(namespaces | {permission.namespace}) > _MAX_NAMESPACES:
            permission = replace(permission, name="", namespace=ANY)
    return permissions - {one for one in same if _covers(permission, one)} | {permission}


def _covers(wide: Permission, permission: Permission) -> bool:
    """Return whether one of two permissions that differ in scope alone includes the other."""
    everywhere = wide.namespace == ANY and permission.namespace != ""
    return wide.name in {"", permission.name} and (
        everywhere or wide.namespace == permission.namespace
    )


def _without_scope(permission: Permission) -> tuple[str, ...]:
    group, resource, path = permission.group, permission.resource, permission.path
    return permission.by, group, resource, permission.verb, path, permission.role


def encode(permissions: Iterable[Permission]) -> str:
    """Return the text of a file: one line for permissions that differ only in verbs and names."""
    verbs: defaultdict[Permission, set[str]] = defaultdict(set)
    for permission in permissions:
        verbs[replace(permission, verb="")].add(permission.verb)
    names: defaultdict[tuple[Permission, bool, tuple[str, ...]], list[str]] = defaultdict(list)
    for permission, used in sorted(verbs.items()):
        key = replace(permission, name=""), bool(permission.name), tuple(sorted(used))
        names[key].append(permission.name)
    lines = []
    for (permission, named, used_), called in sorted(names.items()):
        entry: dict[str, Any] = {
            key: getattr(permission, key) for key in _TEXTS if getattr(permission, key)
        }
        entry |= ({"names": called} if named else {}) | {"verbs": [*used_]}
        line = yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10_000)
        lines.append(f"- {line}")
    return _HEADER + "".join(lines or ["[]\n"])


def read(file: Path) -> list[Permission]:
    """Return the permissions in a file. Raises ConfigError with file, entry and hint."""
    try:
        content: Any = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: cannot read: {error}") from error
    if not isinstance(content, list):
        raise ConfigError(f"{file}: invalid recording: expected a list; remove the file")
    permissions = []
    for number, entry in enumerate(content):
        if (problem := _problem(entry)) is not None:
            raise ConfigError(f"{file}: [{number}]: {problem}; remove the entry")
        texts = {key: entry.get(key, "") for key in _TEXTS}
        permissions += [
            Permission(**texts, verb=verb, name=name)
            for verb in entry["verbs"]
            for name in entry.get("names") or ("",)
        ]
    return permissions


def _problem(entry: Any) -> str | None:
    """Return why an entry is invalid, None if it is valid."""
    if not isinstance(entry, dict):
        return "expected a mapping"
    for key, value in entry.items():
        if key in _TEXTS:
            if not isinstance(value, str):
                return f"{key} must be a string"
        elif key not in _LISTS:
            return f"unknown key {key}"
        elif not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            return f"{key} must be a list of strings"
    if not entry.get("verbs"):
        return "verbs are missing"
    return None if entry.get("resource") or entry.get("path") else "resource or path is missing"


_UNAUTHORIZED = 401
_MAX_BODY_BYTES = 256 * 1024
"""No Role and no binding is larger."""


class PermissionRecorder:
    """Records requests after their response."""

    def __init__(self, permission_log: PermissionLog, discovery: Discovery) -> None:
        """`discovery` finds the resource of an owner whose deletion is blocked."""
        self._permission_log = permission_log
        self._discovery = discovery

    async def record(
        self,
        request: web.BaseRequest,
        grant: Grant | None,
        body: Any,
        status: int,
        before: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Record the permissions of a request, of any status. Never raises.

        `body` is what was sent: bytes if it was buffered; a stream is ignored. `before` has
        method and path of the requests that the proxy itself made for this one.
        """
        if status == _UNAUTHORIZED:
            return
        subject = _subject(grant)
        try:
            found = [
                permission
                for method, path in before
                for permission in permissions_for_request(method, path, subject)
            ]
            found += [each async for each in self._permissions(request, subject, body, status)]
            self._permission_log.add(found)
        except ApiError as error:
            _log.warning("Cannot record a request", path=request.path, error=str(error))
        except Exception:  # noqa: BLE001 the client gets its response
            _log.exception("Internal error while recording a request", path=request.path)

    async def _permissions(
        self, request: web.BaseRequest, subject: Subject, body: Any, status: int
    ) -> AsyncIterator[Permission]:
        acting = list(impersonation_permissions(request.headers, subject.by))
        if acting:
            # All else needs the permissions of the impersonated user.
            for permission in acting:
                yield permission
            return
        path = request.raw_path.partition("?")[0]
        for permission in permissions_for_request(
            request.method, path, subject, watch=is_watch(request.query), status=status
        ):
            yield permission
        info, content = RequestInfo.parse(path), _content(body)
        if info is None or content is None:
            return
        for permission in permissions_in_body(info, content, subject):
            yield permission
        for gvk in owners_with_blocked_deletion(content):
            owner = await self._discovery.resource(gvk)
            where = info.namespace if owner.namespaced else ""
            namespace = "own" if where and where == subject.namespace else where
            yield Permission(
                subject.by, gvk.group, f"{owner.plural}/finalizers", namespace, "update"
            )


def _subject(grant: Grant | None) -> Subject:
    if grant is None:
        return Subject()
    ref = grant.owner.ref
    return Subject(ref.gvk.kind_and_group, ref.namespace, ref.name)


def _content(body: Any) -> Json | None:
    """Return the object in a JSON body; None for YAML, protobuf and large bodies."""
    if not isinstance(body, bytes) or len(body) > _MAX_BODY_BYTES:
        return None
    try:
        content: Any = decode_json(body)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
