"""Keys and certificates of a local cluster. Owner of the `cryptography` library here.

All of them live as long as the cluster: every start makes new ones.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from operator_runner.devcluster import files

_LIFE = dt.timedelta(days=3650)
# Clocks of virtual machines step back now and then.
_EARLY = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Files of a certificate and its private key, both PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that signs into one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        """Make the authority's own key pair as `name`.crt and `name`.key in `folder` (0700)."""
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name, None)
        certificate = (
            _unsigned(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pair = _store(folder, name, certificate, self._key)

    def client(self, file: str, user: str, group: str | None = None) -> KeyPair:
        """Sign a client certificate: Kubernetes reads CN as the user and O as the group."""
        return self._sign(file, _subject(user, group), ())

    def server(self, file: str, names: Sequence[str]) -> KeyPair:
        """Sign a certificate for the DNS names and IP addresses `names`.

        It also serves as a client certificate: etcd uses one pair for both ways.
        """
        return self._sign(file, _subject(file, None), names)

    def _sign(self, file: str, subject: x509.Name, names: Sequence[str]) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _unsigned(subject, self._name, key.public_key()).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        if names:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            # Python 3.13 and newer take no certificate without it.
            .add_extension(authority, critical=False)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return _store(self._folder, file, certificate, key)


def signing_key(path: Path) -> Path:
    """Write a private key for signing service account tokens (ES256) to `path`."""
    return files.write(path, _pem(ec.generate_private_key(ec.SECP256R1())))


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _subject(user: str, group: str | None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _store(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> KeyPair:
    return KeyPair(
        files.write(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM)),
        files.write(folder / f"{name}.key", _pem(key)),
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        # The API server finds no public key in the PKCS#8 form of an elliptic key.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
