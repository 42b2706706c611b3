"""The operator's own certificates: the API server trusts them, also while they are renewed."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence

import pytest

from operator_runner.core.errors import ApiError
from operator_runner.core.model import Json
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.certificate_sources import SecretCertificates
from operator_runner.net.certificates import CertificateBundle, CertificateLifetimes
from tests.contract.conversion.conftest import SHORT, Kind, served, serving, until


async def _crd(kind: Kind) -> Json:
    return await kind.api.request("GET", kind.crd)


def _authorities(crd: Json) -> bytes:
    config = crd["spec"]["conversion"]["webhook"]["clientConfig"]
    return base64.b64decode(config["caBundle"])


async def _until_served(kind: Kind, name: str) -> Json:
    async with asyncio.timeout(180):
        while True:
            try:
                return await kind.get("v1", name)
            except ApiError:
                await asyncio.sleep(0.1)


async def test_the_webhook_is_registered_and_converts(kind: Kind) -> None:
    """The CRD gets address and authority, and each version is read as the other."""
    await kind.create("v2", "web", replicas=3)
    with pytest.raises(ApiError, match="conversion webhook"):
        await kind.get("v1", "web")
    async with served(kind, CertificateLifetimes()):
        body = await _until_served(kind, "web")
        assert body["spec"] == {"size": 3}
        await kind.create("v1", "old", size=2)
        listed = await kind.get("v2")
        assert [item["spec"] for item in listed["items"]] == [{"replicas": 2}, {"replicas": 3}]


async def test_requests_succeed_while_certificates_and_authorities_change(kind: Kind) -> None:
    """Old and new authority overlap, and until the old one is dropped no conversion fails."""
    await kind.create("v2", "web", replicas=3)
    async with served(kind, SHORT):
        await _until_served(kind, "web")
        first = _authorities(await _crd(kind))
        bundle, overlapped = first, False
        async with asyncio.timeout(300):
            while not overlapped or first in bundle:
                body = await kind.get("v1", "web")
                assert body["spec"] == {"size": 3}
                bundle = _authorities(await _crd(kind))
                overlapped = overlapped or bundle.count(b"BEGIN CERTIFICATE") > 1
        body = await kind.get("v1", "web")
        assert body["spec"] == {"size": 3}


async def test_a_reset_crd_is_registered_again(kind: Kind) -> None:
    """A CRD that is applied again is registered again."""
    await kind.create("v2", "web", replicas=3)
    async with served(kind, SHORT):
        config = {"url": "https://127.0.0.1:9/convert", "caBundle": None}
        webhook = {"webhook": {"clientConfig": config}}
        patch = {"spec": {"conversion": webhook}}
        crd = await kind.api.request("PATCH", kind.crd, body=patch, content_type=MERGE_PATCH)

        async def is_corrected() -> bool:
            return bool((await _crd(kind))["spec"] != crd["spec"])

        await until(is_corrected)
        assert (await _until_served(kind, "web"))["spec"] == {"size": 3}


async def test_an_error_names_object_and_field(kind: Kind) -> None:
    """The client that writes gets the error of an expression; who reads gets the other fields."""
    await kind.create("v2", "web", replicas=3, note="x")
    async with served(kind, CertificateLifetimes(), size="abs(spec.note)"):
        body = await _until_served(kind, "web")
        assert body["spec"] == {"note": "x"}
        with pytest.raises(ApiError, match="Web default/other: cannot convert v2 to v1") as caught:
            await kind.create("v1", "other", size=1, note="x")
    assert "spec.size: In function abs()" in str(caught.value)


@pytest.mark.parametrize("room", [0, 70], ids=["full", "almost full"])
async def test_annotations_of_one_object_leave_lists_readable(kind: Kind, room: int) -> None:
    """The object lacks the fields that its annotations have no room for, in a read."""
    key = "example.com/text"
    body = {
        "apiVersion": f"{kind.group}/v2",
        "kind": "Web",
        "metadata": {
            "name": "large",
            "annotations": {key: "x" * (256 * 1024 - len(key) - room)},
        },
        "spec": {"replicas": 3},
    }
    await kind.request("POST", kind.path("v2"), body)
    await kind.create("v2", "web", replicas=2)
    async with served(kind, CertificateLifetimes(), size="to_number('1')"):
        await _until_served(kind, "web")
        listed = await kind.get("v1")
        assert [item["spec"] for item in listed["items"]] == [{"size": 1}, {"size": 1}]
        large, web = listed["items"]
        preserved = f"conversion.operator-runner.dev/{kind.hub.version}"
        assert '"replicas"' not in large["metadata"]["annotations"].get(preserved, "")
        assert "spec.replicas" in web["metadata"]["annotations"][preserved]
        assert (await kind.get("v2", "large"))["spec"] == {"replicas": 3}
        if room:
            # The API server converts the object back to store it.
            with pytest.raises(ApiError, match="write the object as v2"):
                await kind.request("PUT", kind.path("v1", "large"), large)
            assert (await kind.get("v2", "large"))["spec"] == {"replicas": 3}
        await kind.request("PUT", kind.path("v1", "web"), web)
        assert (await kind.get("v2", "web"))["spec"] == {"replicas": 2}


@pytest.mark.parametrize(
    ("opening", "levels"),
    [('{"a":', 150), ('{"a":', 5_000), ("[", 9_800), ("[", 9_990)],
    ids=["150 maps", "5000 maps", "9800 lists", "9990 lists"],
)
async def test_an_object_of_any_depth_leaves_lists_readable(
    kind: Kind, opening: str, levels: int
) -> None:
    """Its deep values are copied, and only what no response can contain is missing in a read."""
    deep = opening * levels + "1" + ("]" if opening == "[" else "}") * levels
    spec = f'"spec":{{"extra":{deep},"replicas":3}}'
    await kind.text("POST", kind.path("v2"), _named(kind, "v2", "deep", spec))
    await kind.create("v2", "web", replicas=2)
    async with served(kind, CertificateLifetimes()):
        await _until_served(kind, "web")
        listed = await kind.text("GET", kind.path("v1"))
        assert '"spec":{"size":2}' in listed
        assert '"size":3' in listed
        assert (deep in listed) == (levels < 9_900)
        written = _named(kind, "v1", "new", f'"spec":{{"extra":{deep},"size":4}}')
        if levels >= 9_900:
            with pytest.raises(AssertionError, match="Web default/new: nested too deep"):
                await kind.text("POST", kind.path("v1"), written)
        else:
            await kind.text("POST", kind.path("v1"), written)
            stored = await kind.text("GET", kind.path("v2", "new"))
            assert f'"spec":{{"extra":{deep},"replicas":4}}' in stored


def _named(kind: Kind, version: str, name: str, spec: str) -> str:
    head = f'"apiVersion":"{kind.group}/{version}","kind":"Web","metadata":{{"name":"{name}"}}'
    return f"{{{head},{spec}}}"


async def test_the_ca_of_cert_manager_is_kept(kind: Kind) -> None:
    """If cert-manager injects its CA, nothing is written, and readiness has the reason."""
    annotations = {"cert-manager.io/inject-ca-from": "default/serving-cert"}
    patch = {"metadata": {"annotations": annotations}}
    crd = await kind.api.request("PATCH", kind.crd, body=patch, content_type=MERGE_PATCH)
    async with serving(kind, SHORT) as webhook:

        async def is_refused() -> bool:
            return "cert-manager" in (webhook.registrar.missing() or "")

        await until(is_refused)
    assert (await _crd(kind))["spec"] == crd["spec"]


async def test_a_service_in_the_crd_is_not_replaced_by_an_address(
    kind: Kind, namespace: str
) -> None:
    """An operator on a workstation does not take over as long as the Service exists."""
    services = f"/api/v1/namespaces/{namespace}/services"
    service = {"namespace": namespace, "name": "webhook", "path": "/convert"}
    config = {"url": None, "service": service}
    made = {"metadata": {"name": "webhook"}, "spec": {"ports": [{"port": 443}]}}
    await kind.api.request("POST", services, body=made)
    patch = {"spec": {"conversion": {"webhook": {"clientConfig": config}}}}
    crd = await kind.api.request("PATCH", kind.crd, body=patch, content_type=MERGE_PATCH)
    await kind.create("v2", "web", replicas=3)
    async with served(kind, SHORT):
        assert (await _crd(kind))["spec"] == crd["spec"]
        await kind.api.request("DELETE", f"{services}/webhook")
        assert (await _until_served(kind, "web"))["spec"] == {"size": 3}


class OutdatedOnce:
    """The certificates of a replica that is frozen after it has read them for the first time."""

    def __init__(self, kind: Kind, namespace: str) -> None:
        self._kind = kind
        self._secret = f"/api/v1/namespaces/{namespace}/secrets/webhook"
        self._source = SecretCertificates(kind.api, namespace, "webhook", CertificateLifetimes())
        self.newest: bytes = b""

    async def current(self, names: Sequence[str], *, is_published: bool) -> CertificateBundle:
        """Return the certificates; meanwhile another replica registers others once."""
        found = await self._source.current(names, is_published=is_published)
        if not self.newest:
            await self._kind.api.request("DELETE", self._secret)
            self.newest = (await self._source.current(names, is_published=is_published)).authorities
            config = {"caBundle": base64.b64encode(self.newest).decode()}
            change = {"spec": {"conversion": {"webhook": {"clientConfig": config}}}}
            await self._kind.api.request(
                "PATCH", self._kind.crd, body=change, content_type=MERGE_PATCH
            )
        return found


async def test_a_replica_does_not_register_certificates_that_others_have_replaced(
    kind: Kind, namespace: str
) -> None:
    """The API server would not trust the other replicas until the next check."""
    source = OutdatedOnce(kind, namespace)
    async with served(kind, CertificateLifetimes(), source=source):
        assert _authorities(await _crd(kind)) == source.newest


async def test_replicas_that_start_at_once_agree(api: Api, namespace: str) -> None:
    """Of many that find no Secret one makes it, and all have the same certificates."""
    replicas = [
        SecretCertificates(api, namespace, "webhook", CertificateLifetimes()) for _ in range(6)
    ]
    names = ["webhook.test.svc"]
    all_of = await asyncio.gather(*(each.current(names, is_published=False) for each in replicas))
    assert len({each.authorities for each in all_of}) == 1
    assert len({each.certificate for each in all_of}) == 1
    secret = await api.request("GET", f"/api/v1/namespaces/{namespace}/secrets/webhook")
    assert secret["type"] == "kubernetes.io/tls"
    # An unreadable Secret is replaced, once.
    broken = {"data": {"tls.key": base64.b64encode(b"x").decode()}}
    path = f"/api/v1/namespaces/{namespace}/secrets/webhook"
    await api.request("PATCH", path, body=broken, content_type=MERGE_PATCH)
    again = await asyncio.gather(*(each.current(names, is_published=True) for each in replicas))
    assert len({each.certificate for each in again}) == 1
    assert again[0].certificate != all_of[0].certificate
