"""Self-signed serving certificates of the operator's own servers, created at each start.

The proxy needs TLS because client-go, and so kubectl and helm, sends no token over plain HTTP. The
metrics server needs it to protect the tokens of scrapers. The private key is only in memory.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from operator_runner.net.tls_keys import load_cert_chain

_VALIDITY = dt.timedelta(days=3650)
_BACKDATE = dt.timedelta(hours=1)
"""Tolerance for clocks that step back, as those of virtual machines do."""


def unverified_context(name: str, names: Sequence[str]) -> ssl.SSLContext:
    """Return a TLS context whose certificate clients do not verify, as in controller-runtime."""
    with tempfile.TemporaryDirectory() as folder:
        return server_context(Path(folder) / "tls.crt", names, name)


def server_context(
    certificate: Path, names: Sequence[str], name: str = "operator-runner proxy"
) -> ssl.SSLContext:
    """Return a TLS context for DNS names and IP addresses; write its certificate as PEM.

    `name` is the common name. The certificate is self-signed, so the file is the CA bundle for
    clients.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    pem = _self_signed(key, name, names).public_bytes(serialization.Encoding.PEM)
    certificate.write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    load_cert_chain(context, pem, private)
    return context


def _self_signed(
    key: ec.EllipticCurvePrivateKey, name: str, names: Sequence[str]
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectAlternativeName(map(_general_name, names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_USAGE, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )


_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
