"""Fields of a CRD that are written, and fields that are kept."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from operator_runner.conversion.registrar import (
    Service,
    Url,
    ca_injector_problem,
    existing_service,
    is_trusted,
    patch,
)

Json = dict[str, Any]
SERVICE = Service("shop", "webhook")
URL = Url("127.0.0.1", 9443)


def crd(conversion: Json | None = None, **annotations: str) -> Json:
    metadata = {"name": "webs.example.com", "resourceVersion": "5", "annotations": annotations}
    return {"metadata": metadata, "spec": {"conversion": conversion or {"strategy": "None"}}}


def webhook(**config: Any) -> Json:
    details = {"conversionReviewVersions": ["v1"], "clientConfig": config}
    return {"strategy": "Webhook", "webhook": details}


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.mark.parametrize(
    ("target", "config"),
    [
        (
            SERVICE,
            {
                "url": None,
                "service": {
                    "namespace": "shop",
                    "name": "webhook",
                    "path": "/convert",
                    "port": 443,
                },
            },
        ),
        (URL, {"service": None, "url": "https://127.0.0.1:9443/convert"}),
        (Url("::1", 1), {"service": None, "url": "https://[::1]:1/convert"}),
    ],
)
def test_a_registration_replaces_the_conversion_of_the_crd(
    target: Service | Url, config: Json
) -> None:
    """Strategy, URL and CAs, with the resourceVersion as precondition."""
    assert patch(crd(), target, b"CA") == {
        "metadata": {"resourceVersion": "5"},
        "spec": {"conversion": webhook(**config, caBundle=encoded(b"CA"))},
    }


def test_the_log_names_the_target_as_users_write_it() -> None:
    """The URL in the CRD, or the value of --webhook-service."""
    assert str(Url("::1", 9443)) == "https://[::1]:9443/convert"
    assert str(Service("shop", "webhook")) == "shop/webhook:443"


def test_an_existing_registration_is_not_written_again() -> None:
    """Nor are other review versions taken away."""
    now = webhook(url="https://127.0.0.1:9443/convert", caBundle=encoded(b"CA"))
    now["webhook"]["conversionReviewVersions"] = ["v2", "v1"]
    assert patch(crd(now), URL, b"CA") is None
    assert patch(crd(now), URL, b"CB") is not None
    assert patch(crd(now), SERVICE, b"CA") is not None


def test_authorities_in_the_ca_bundle_are_recognised() -> None:
    """A bundle has several certificates."""
    assert is_trusted(crd(webhook(caBundle=encoded(b"one two"))), b"two")
    assert not is_trusted(crd(webhook(caBundle=encoded(b"one"))), b"two")
    assert not is_trusted(crd(webhook(caBundle="?")), b"two")
    assert not is_trusted(crd(), b"two")


def test_cert_manager_has_priority() -> None:
    """The annotation of its CA injector is respected, and named."""
    managed = crd(None, **{"cert-manager.io/inject-ca-from": "a/b"})
    assert "webs.example.com has the annotation cert-manager.io/inject-ca-from" in (
        ca_injector_problem(managed) or ""
    )
    assert ca_injector_problem(crd()) is None


def test_a_service_is_not_replaced_by_an_address_by_default() -> None:
    """An operator in the cluster keeps its Service; so does one that is named itself."""
    taken = crd(webhook(service={"namespace": "a", "name": "b"}))
    assert existing_service(taken, URL) == Service("a", "b")
    assert existing_service(taken, SERVICE) is None
    assert existing_service(taken, Url("10.0.0.1", 9443, replaces_service=True)) is None
    assert existing_service(crd(webhook(url="https://10.0.0.1/convert")), URL) is None
