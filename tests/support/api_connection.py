"""Read and write objects over one connection: a kubectl process for each would load the machine."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

Json = dict[str, Any]

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SECONDS = 30.0
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class CannotRequestError(Exception):
    """The request cannot be made or has failed: kubectl is called instead, and reports why."""


@dataclass(frozen=True)
class _Kind:
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        place = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{root}{place}/{self.plural}/{name}".rstrip("/")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class ApiConnection:
    """Does what `kubectl get --output=json`, `create`, `apply` and `patch` do, as their user."""

    def __init__(self, program: Path) -> None:
        """Take the connection of a kubectl."""
        command = [
            str(program),
            "config",
            "view",
            "--raw",
            "--flatten",
            "--minify",
            "--output=json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRequestError(done.stderr)
        config = json.loads(done.stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        if "certificate-authority-data" not in cluster:
            raise CannotRequestError("the cluster is reached in another way")
        context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        headers = {}
        if "token" in user:
            headers["Authorization"] = f"Bearer {user['token']}"
        elif "client-certificate-data" in user and "client-key-data" in user:
            with tempfile.TemporaryDirectory() as folder:
                files = [Path(folder, name) for name in ("certificate", "key")]
                for file, field in zip(
                    files, ("client-certificate-data", "client-key-data"), strict=True
                ):
                    file.write_text(_decoded(user[field]))
                context.load_cert_chain(*map(str, files))
        else:
            raise CannotRequestError("the user authenticates in another way")
        self._server = cluster["server"]
        self._pool = urllib3.PoolManager(
            ssl_context=context, headers=headers, timeout=_SECONDS, retries=False
        )
        self._built_in: dict[str, _Kind] = {}

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object, None if it does not exist. Raises CannotRequestError."""
        found = self._read(self._kind(kind).path(namespace, name))
        return None if found is None else _shown(found)

    def list(self, kind: str, namespace: str, selector: str) -> list[Json]:
        """Return the objects of a kind. Raises CannotRequestError."""
        resource = self._kind(kind)
        query = urlencode({"labelSelector": selector})
        found = self._read(f"{resource.path(namespace)}?{query}")
        if found is None:
            raise CannotRequestError(f"{kind} is not served")
        type_ = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [_shown({**type_, **item}) for item in found["items"]]

    def create(self, namespace: str, body: Json) -> None:
        """Create an object. Raises CannotRequestError."""
        self._create(namespace, body, "kubectl-create")

    def apply(self, namespace: str, body: Json) -> None:
        """Create an object as `kubectl apply` does.

        Raises CannotRequestError if it exists: kubectl computes the patch.
        """
        metadata = {"annotations": {}, **body["metadata"]}
        if self._kind_of(body).namespaced:
            metadata.setdefault("namespace", namespace)
        last = json.dumps({**body, "metadata": metadata}, separators=(",", ":"), sort_keys=True)
        annotations = {**metadata["annotations"], _LAST_APPLIED: f"{last}\n"}
        applied = {**body, "metadata": {**metadata, "annotations": annotations}}
        self._create(namespace, applied, "kubectl-client-side-apply")

    def merge(self, kind: str, namespace: str, name: str, patch: Json) -> None:
        """Merge a patch into an object. Raises CannotRequestError."""
        path = f"{self._kind(kind).path(namespace, name)}?fieldManager=kubectl-patch"
        self._write("PATCH", path, patch, "application/merge-patch+json")

    def _create(self, namespace: str, body: Json, manager: str) -> None:
        resource = self._kind_of(body)
        if resource.namespaced and body["metadata"].get("namespace", namespace) != namespace:
            raise CannotRequestError("the object is in another namespace")
        query = urlencode({"fieldManager": manager, "fieldValidation": "Strict"})
        self._write("POST", f"{resource.path(namespace)}?{query}", body, "application/json")

    def _write(self, method: str, path: str, body: Json, content: str) -> None:
        status, answer = self._request(path, method=method, body=body, content=content)
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise CannotRequestError(answer.decode(errors="replace"))

    def serves(self, kind: str) -> bool:
        """Return whether discovery lists a kind, and requests for its objects are handled.

        Discovery may list one that has been deleted. No object is read: a webhook may have to
        convert it.
        """
        try:
            path = self._kind(kind).path("default", "none")
            status, body = self._request(path)
        except CannotRequestError:
            return False
        # An unknown path has no Status with the name of an object.
        return status == HTTPStatus.OK or (
            status == HTTPStatus.NOT_FOUND and b'"name":"none"' in body
        )

    def _kind_of(self, body: Json) -> _Kind:
        group, _, version = body["apiVersion"].rpartition("/")
        return self._kind(f"{body['kind']}.{version}.{group}")

    def _kind(self, text: str) -> _Kind:
        """Resolve a kind as kubectl does; a custom one again each time, since versions change."""
        if (known := self._built_in.get(text)) is not None:
            return known
        word, _, rest = text.lower().partition(".")
        for root in ("/api", "/apis"):
            for group in (self._read(root, _DISCOVERY) or {}).get("items", ()):
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    if rest not in {"", name, f"{version['version']}.{name}"}:
                        continue
                    for resource in version["resources"]:
                        if word in _words(resource):
                            return self._found(text, name, version["version"], resource)
        raise CannotRequestError(f"no kind {text}")

    def _found(self, text: str, group: str, version: str, resource: Json) -> _Kind:
        kind = resource["responseKind"]["kind"]
        is_namespaced = resource["scope"] == "Namespaced"
        found = _Kind(group, version, kind, resource["resource"], is_namespaced)
        if "." not in group or group.endswith(".k8s.io"):
            self._built_in[text] = found
        return found

    def _read(self, path: str, accept: str = "application/json") -> Json | None:
        status, content = self._request(path, accept)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            raise CannotRequestError(content.decode(errors="replace"))
        body: Json = json.loads(content)
        return body

    def _request(
        self,
        path: str,
        accept: str = "application/json",
        *,
        method: str = "GET",
        body: Json | None = None,
        content: str = "",
    ) -> tuple[int, bytes]:
        headers = {**self._pool.headers, "Accept": accept}
        if content:
            headers["Content-Type"] = content
        data = None if body is None else json.dumps(body)
        try:
            answer = self._pool.request(method, f"{self._server}{path}", body=data, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise CannotRequestError(str(error)) from error
        return answer.status, answer.data


def _words(resource: Json) -> set[str]:
    kind = resource["responseKind"]["kind"].lower()
    names = (resource["resource"], resource.get("singularResource", ""), kind)
    return {*names, *resource.get("shortNames", ())}


def _shown(body: Json) -> Json:
    """Return an object without what kubectl hides."""
    body["metadata"].pop("managedFields", None)
    return body


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
