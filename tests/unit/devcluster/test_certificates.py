"""Certificates and kubeconfigs of a cluster."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import ssl
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from operator_runner.devcluster.control_plane import Authority, KeyPair, kubeconfig, signing_key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Make an authority that signs into the temporary folder."""
    return Authority(tmp_path, "ca")


def _certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def test_a_client_is_user_and_group(authority: Authority) -> None:
    """Kubernetes reads the user from CN and its group from O."""
    subject = _certificate(authority.client("admin", "alice", "system:masters")).subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "alice"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:masters"


def test_a_server_answers_to_its_names(authority: Authority) -> None:
    """IP addresses and DNS names are kept apart, as clients check them."""
    pair = authority.server("api-server", ["127.0.0.1", "kubernetes.default"])
    extension = _certificate(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    names = extension.value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert names.get_values_for_type(x509.DNSName) == ["kubernetes.default"]


def test_certificates_are_signed_by_their_authority(authority: Authority, tmp_path: Path) -> None:
    """Another authority does not vouch for them."""
    issued = _certificate(authority.client("admin", "alice"))
    issued.verify_directly_issued_by(_certificate(authority.pair))
    with pytest.raises(ValueError, match="Issuer"):
        issued.verify_directly_issued_by(_certificate(Authority(tmp_path, "other").pair))


def test_the_strictest_client_accepts_them(authority: Authority) -> None:
    """Python 3.13 verifies by all rules of RFC 5280, older versions on request."""
    pair = authority.server("api-server", ["127.0.0.1"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    client = ssl.create_default_context(cafile=str(authority.pair.certificate))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (ours, theirs, ours):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert ours.getpeercert()


def test_private_keys_are_readable_by_their_owner_only(
    authority: Authority, tmp_path: Path
) -> None:
    """No key can be read by another user."""
    keys = [authority.pair.key, authority.client("a", "a").key, signing_key(tmp_path / "sa.key")]
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}


def test_a_kubeconfig_carries_everything_itself(authority: Authority) -> None:
    """It can be copied elsewhere: certificates and key are inside."""
    user = authority.client("admin", "alice")
    ca = authority.pair.certificate
    text = kubeconfig(server="https://127.0.0.1:1", authority=ca, user=user, name="lab")
    loaded = yaml.safe_load(text)
    assert loaded["current-context"] == "lab"
    assert loaded["contexts"][0]["name"] == "lab"
    assert loaded["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    key = loaded["users"][0]["user"]["client-key-data"]
    assert base64.b64decode(key) == user.key.read_bytes()
