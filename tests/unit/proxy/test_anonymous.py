"""The owner that a program without a token names, as ansible-operator's kubeconfigs carry it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from operator_runner.core.model import GVK, RunContent, Watch
from operator_runner.proxy.server import grant_for_basic_auth
from operator_runner.proxy.status_errors import StatusError

GROUP = "cache.example.com"
WATCHES = [Watch(GVK(GROUP, "v1alpha1", "Memcached"), RunContent(role=Path("/roles/any")))]
OWNER = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "Memcached",
    "name": "sample>?",
    "uid": "uid-1",
    "namespace": "team",
}


def header(user: bytes, password: str = "unused") -> str:
    return "Basic " + base64.b64encode(user + b":" + password.encode()).decode()


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_the_owner_is_read_from_the_user_name(encode: object) -> None:
    """Both alphabets of base64 are read, with padding and without; the password means nothing."""
    assert callable(encode)
    user = encode(json.dumps(OWNER).encode())
    for given in (header(user), header(user.rstrip(b"="), "")):
        grant = grant_for_basic_auth(given, WATCHES)
        assert grant is not None
        assert grant.owner.reference == {k: v for k, v in OWNER.items() if k != "namespace"}
        assert grant.owner.ref.namespace == "team"
        assert (grant.watch, grant.run_id) == (WATCHES[0], "")


def test_an_owner_without_a_namespace_is_cluster_scoped() -> None:
    """Without a namespace the owner is cluster-scoped."""
    body = {key: value for key, value in OWNER.items() if key != "namespace"}
    grant = grant_for_basic_auth(header(base64.b64encode(json.dumps(body).encode())), WATCHES)
    assert grant is not None
    assert grant.owner.ref.namespace == ""


@pytest.mark.parametrize("given", ["", "Bearer void", "Negotiate x"])
def test_other_authentication_names_no_owner(given: str) -> None:
    """Other forms of authentication have no owner, and are not errors."""
    assert grant_for_basic_auth(given, WATCHES) is None


@pytest.mark.parametrize(
    ("user", "text"),
    [
        (b"admin", "invalid owner in the user"),
        (b"!!!", "invalid owner in the user"),
        (base64.b64encode(b"[]"), "invalid owner in the user"),
        (base64.b64encode(b'{"kind": "Memcached"}'), "invalid owner in the user"),
        (base64.b64encode(json.dumps(OWNER | {"uid": ""}).encode()), "invalid owner in the user"),
        (base64.b64encode(json.dumps(OWNER | {"name": 1}).encode()), "invalid owner in the user"),
        (
            base64.b64encode(json.dumps(OWNER | {"kind": "Redis"}).encode()),
            "watches.yaml does not name the owner's kind: ",
        ),
    ],
)
def test_an_invalid_owner_is_an_error(user: bytes, text: str) -> None:
    """An invalid owner is an error, so that no orphans are created."""
    with pytest.raises(StatusError, match=text) as caught:
        grant_for_basic_auth(header(user), WATCHES)
    assert caught.value.code == 400
