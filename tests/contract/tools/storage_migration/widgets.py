"""Widgets: a kind that is served in v1 and v2, and stored in one of them."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import Any

from operator_runner.core.errors import Conflict, NotFound, Unavailable
from operator_runner.core.model import Json
from operator_runner.kube.api import MERGE_PATCH, Api
from tests.contract.kube.waiting import until
from tests.contract.tools.storage_migration.webhook import Webhook
from tests.support.etcd import Etcd

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_AT_ONCE = 16


class Widgets:
    """The CRD and the objects of one test, in a group of its own."""

    def __init__(self, api: Api, etcd: Etcd, namespace: str) -> None:
        """Install nothing yet."""
        self.api, self.etcd, self.namespace = api, etcd, namespace
        self.group = f"m{secrets.token_hex(3)}.example.com"
        self.crd_name = f"widgets.{self.group}"
        self._admission: str | None = None

    async def install(self) -> None:
        """Install the CRD, stored in v1, and wait until it is served."""
        names = {"kind": "Widget", "plural": "widgets"}
        spec = {"group": self.group, "scope": "Namespaced", "names": names}
        await self.api.request(
            "POST",
            _CRDS,
            body={
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": self.crd_name},
                "spec": spec | {"versions": _versions("v1")},
            },
        )
        # The condition Established comes a moment before the path.
        await until(self._served)

    async def _served(self) -> bool:
        try:
            await self.api.request("GET", self.path())
        except NotFound:
            return False
        return True

    async def uninstall(self) -> None:
        """Take it away, with all objects."""
        if self._admission:
            await self.api.request("DELETE", f"{_WEBHOOKS}/{self._admission}")
        await self.edit_crd({"spec": {"conversion": {"strategy": "None", "webhook": None}}})
        await self.api.request("DELETE", f"{_CRDS}/{self.crd_name}")

    async def store_in(self, version: str, webhook: Webhook | None = None) -> None:
        """Change the storage version, and have a webhook convert."""
        spec: Json = {"versions": _versions(version)}
        if webhook is not None:
            client = webhook.client("/convert")
            reviews = {"conversionReviewVersions": ["v1"], "clientConfig": client}
            spec["conversion"] = {"strategy": "Webhook", "webhook": reviews}
        await self.edit_crd({"spec": spec})
        # The API server writes the new version once it has read the CRD.
        await until(lambda: self._writes(version))

    async def _writes(self, version: str) -> bool:
        # While it replaces the handlers of the CRD, the API server is unavailable for widgets.
        with suppress(Unavailable):
            with suppress(Conflict):  # one that could not be deleted
                await self.create("probe")
            written = self.etcd.versions(self.group, "widgets")["probe"]
            await self.api.request("DELETE", self.path("probe"))
            return written == version
        return False

    async def admit_by(self, webhook: Webhook) -> None:
        """Register the webhook for updates of widgets."""
        self._admission = self.crd_name
        rule = {"apiGroups": [self.group], "apiVersions": ["*"], "resources": ["widgets"]}
        await self.api.request(
            "POST",
            _WEBHOOKS,
            body={
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": self.crd_name},
                "webhooks": [
                    {
                        "name": self.crd_name,
                        "rules": [rule | {"operations": ["UPDATE"]}],
                        "clientConfig": webhook.client("/admit"),
                        "admissionReviewVersions": ["v1"],
                        "sideEffects": "None",
                        "timeoutSeconds": 30,
                    }
                ],
            },
        )
        # It is called some time after the registration.
        await self.create("admitted-object")

        async def is_called() -> bool:
            await self.edit(
                "admitted-object", {"metadata": {"labels": {"try": secrets.token_hex(4)}}}
            )
            return "admitted-object" in webhook.admitted

        await until(is_called)
        await self.api.request("DELETE", self.path("admitted-object"))

    async def create(self, name: str, version: str = "v1", **spec: Any) -> None:
        """Make one widget."""
        body = {
            "apiVersion": f"{self.group}/{version}",
            "kind": "Widget",
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.api.request("POST", self.path(version=version), body=body)

    async def create_many(self, count: int) -> None:
        """Make widgets w-000, w-001, ..., in v1."""
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                await self.create(f"w-{number:03}", size=number)

        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))

    async def edit(self, name: str, patch: Json) -> None:
        """Merge a patch into a widget."""
        await self.api.request("PATCH", self.path(name), body=patch, content_type=MERGE_PATCH)

    async def edit_crd(self, patch: Json) -> None:
        """Merge a patch into the CRD."""
        path = f"{_CRDS}/{self.crd_name}"
        await self.api.request("PATCH", path, body=patch, content_type=MERGE_PATCH)

    async def crd(self) -> Json:
        """Read the CRD."""
        return await self.api.request("GET", f"{_CRDS}/{self.crd_name}")

    async def stored_versions(self) -> list[str]:
        """Return the `storedVersions` of the CRD."""
        return list((await self.crd())["status"]["storedVersions"])

    def path(self, name: str = "", version: str = "v1") -> str:
        """Return the path of the namespace's widgets, or of one."""
        base = f"/apis/{self.group}/{version}/namespaces/{self.namespace}/widgets"
        return f"{base}/{name}" if name else base


def _versions(storage: str) -> list[Json]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return [
        {
            "name": name,
            "served": True,
            "storage": name == storage,
            "schema": {"openAPIV3Schema": anything},
        }
        for name in ("v1", "v2")
    ]
