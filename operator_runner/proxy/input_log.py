"""Record what a run reads, and whether it changes anything, from its requests and responses.

Anything that is not understood is an impurity: the inputs of such a run are not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from operator_runner.core.model import Json
from operator_runner.core.run_inputs import (
    ABSENT,
    MAX_READS,
    Read,
    list_version,
    object_version,
)
from operator_runner.kube.api import is_watch
from operator_runner.kube.decoding import DecodingError, decode_json
from operator_runner.kube.paging import continue_token
from operator_runner.proxy.request_info import RequestInfo

_SELECTORS = ("labelSelector", "fieldSelector")
_READ_PARAMETERS = {*_SELECTORS, "pretty", "resourceVersion", "resourceVersionMatch"}
_DISCOVERY = ("/api", "/apis", "/openapi", "/version")
_OK = range(200, 300)
_NOT_FOUND = 404
_WRITES = {"PATCH", "PUT"}


class InputLog:
    """The reads of one run; `reads` is valid if `impurity` is empty after its end."""

    def __init__(self) -> None:
        """Start without requests."""
        self._versions: dict[Read, str] = {}
        self._pending = 0
        self._impurity = ""

    @property
    def impurity(self) -> str:
        """The reason why the inputs are unknown, or a change by the run; empty if neither."""
        return self._impurity or ("a request has no response" if self._pending else "")

    @property
    def reads(self) -> Mapping[Read, str]:
        """The versions of what was read."""
        return self._versions

    def sent(
        self, method: str, path: str, query: Mapping[str, str], info: RequestInfo | None
    ) -> None:
        """Note a request before it is sent; `answered` or `decoded` follows."""
        self._pending += 1
        if info is None:
            parts = path.strip("/").split("/")
            if method != "GET" or f"/{parts[0]}" not in _DISCOVERY:
                self._note(f"{method} {path}")
        elif info.watch or is_watch(query) or "dryRun" in query:
            self._note(f"watch or dry run of {info.resource}")
        elif method == "GET":
            if info.subresource or not _READ_PARAMETERS.issuperset(query):
                self._note(f"special read of {info.resource}")
        elif method == "DELETE":
            if not info.name or info.subresource:
                self._note(f"deletion of {info.resource}")
        elif method not in _WRITES or info.subresource not in {"", "status"}:
            self._note(f"{method} of {info.resource}")

    def answered(self, method: str, info: RequestInfo | None, status: int) -> bool:
        """Note the status of a response; return whether `decoded` is to be called."""
        if info is None:
            self._pending -= 1
            if status not in _OK and status != _NOT_FOUND:
                self._note(f"discovery failed with HTTP {status}")
            return False
        if status == _NOT_FOUND and method in {"GET", "DELETE"}:
            self._pending -= 1
            if info.name:
                self._read(_object(info), ABSENT)
            else:
                # Of a kind that is not served; discovery shows that too.
                self._note(f"{info.resource} not found")
            return False
        if status not in _OK or method == "DELETE":
            self._pending -= 1
            self._note(f"{method} of {info.resource}: HTTP {status}")
            return False
        return True

    def decoded(self, method: str, info: RequestInfo, query: Mapping[str, str], raw: bytes) -> None:
        """Note the body of a successful response."""
        self._pending -= 1
        try:
            body: Any = decode_json(raw)
        except (ValueError, DecodingError, json.JSONDecodeError):
            body = None
        metadata = _metadata(body)
        if metadata is None:
            self._note(f"response of {info.resource} is not JSON")
        elif info.name:
            self._object(method, info, metadata)
        else:
            self._list(info, query, body)

    def _object(self, method: str, info: RequestInfo, metadata: Json) -> None:
        read = _object(info)
        if not metadata.get("uid") or not metadata.get("resourceVersion"):
            self._note(f"{info.resource} without a version")
            return
        version = object_version(metadata)
        if method != "GET" and self._versions.get(read) != version:
            self._note(f"the run changed {info.resource}/{info.name}")
            return
        self._read(read, version)

    def _list(self, info: RequestInfo, query: Mapping[str, str], body: Json) -> None:
        items = body.get("items")
        found = [_metadata(item) for item in items] if isinstance(items, list) else [None]
        metadata = [each for each in found if each is not None and each.get("resourceVersion")]
        if len(metadata) != len(found) or continue_token(body):
            self._note(f"list of {info.resource} is incomplete")
            return
        selectors = urlencode([(key, query[key]) for key in _SELECTORS if query.get(key)])
        self._read(Read(info.collection_path, "", selectors), list_version(metadata))

    def _read(self, read: Read, version: str) -> None:
        if self._versions.setdefault(read, version) != version:
            self._note(f"{read.collection} changed during the run")
        if len(self._versions) > MAX_READS:
            self._note(f"more than {MAX_READS} reads")

    def _note(self, impurity: str) -> None:
        self._impurity = self._impurity or impurity


def _object(info: RequestInfo) -> Read:
    return Read(info.collection_path, info.name)


def _metadata(body: Any) -> Json | None:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return metadata if isinstance(metadata, dict) else None
