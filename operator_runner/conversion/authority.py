"""The operator's own certificate authority for its webhook: issuance and renewal. Pure.

The API server trusts a bundle of CAs. A new CA is added to it long before the old one expires,
and signs certificates only after the bundle has propagated, so that the API server always trusts
the certificate of every replica.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BACKDATE = dt.timedelta(hours=1)
"""Tolerance for clock skew between machines."""
_NAME = "operator-runner webhook"


@dataclass(frozen=True, slots=True)
class CertificateLifetimes:
    """Validity of certificates; each is renewed when a third of its lifetime is left."""

    authority: dt.timedelta = dt.timedelta(days=365)
    serving: dt.timedelta = dt.timedelta(days=90)
    propagation: dt.timedelta = dt.timedelta(minutes=1)
    """From a new CA to its first certificate: all API servers have the bundle by then."""

    @property
    def check_interval(self) -> dt.timedelta:
        """Time between two checks: several for each replica during `propagation`."""
        return self.propagation / 6


@dataclass(frozen=True, slots=True)
class WebhookCertificates:
    """Certificates and keys that all replicas share, as PEM; `authorities` is newest first."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    @property
    def newest(self) -> bytes:
        """Return the CA that signs."""
        return _pem(x509.load_pem_x509_certificates(self.authorities)[0])


def renew(
    old: WebhookCertificates | None,
    names: Sequence[str],
    now: dt.datetime,
    *,
    known: bool,
    lifetimes: CertificateLifetimes,
) -> WebhookCertificates:
    """Return the certificates to use: `old` itself unless a renewal is due.

    `names` are the DNS names and addresses of the server; `known` is whether the bundle of the
    API server contains the newest CA.
    """
    try:
        return (
            _renew(old, names, now, known=known, lifetimes=lifetimes)
            if old
            else _new(names, now, lifetimes)
        )
    except (ValueError, IndexError, x509.ExtensionNotFound):
        # Not created by this module, and unusable: replace it.
        return _new(names, now, lifetimes)


def expiry(certificate: bytes) -> dt.datetime:
    """Return when a PEM certificate expires; raises ValueError if it is invalid."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _renew(
    old: WebhookCertificates,
    names: Sequence[str],
    now: dt.datetime,
    *,
    known: bool,
    lifetimes: CertificateLifetimes,
) -> WebhookCertificates:
    authorities = x509.load_pem_x509_certificates(old.authorities)
    valid = [each for each in authorities if each.not_valid_after_utc > now]
    if not valid:
        return _new(names, now, lifetimes)
    _key(old.authority_key)
    _key(old.key)
    result = old
    if len(valid) < len(authorities):
        result = replace(result, authorities=b"".join(map(_pem, valid)))
    if _is_due(valid[0], now):
        key = _new_key()
        valid = [_authority(key, now, lifetimes.authority), *valid]
        return replace(result, authorities=b"".join(map(_pem, valid)), authority_key=_key_pem(key))
    serving = x509.load_pem_x509_certificate(old.certificate)
    wanted = (
        _is_due(serving, now)
        or set(_names(serving)) != set(names)
        or not _is_signed_by(serving, valid[0])
    )
    since = now - valid[0].not_valid_before_utc - _BACKDATE
    if wanted and (len(valid) == 1 or (known and since >= lifetimes.propagation)):
        return _sign(result, valid[0], names, now, lifetimes)
    return result


def _new(
    names: Sequence[str], now: dt.datetime, lifetimes: CertificateLifetimes
) -> WebhookCertificates:
    key = _new_key()
    authority = _authority(key, now, lifetimes.authority)
    unsigned = WebhookCertificates(_pem(authority), _key_pem(key), b"", b"")
    return _sign(unsigned, authority, names, now, lifetimes)


def _sign(
    old: WebhookCertificates,
    authority: x509.Certificate,
    names: Sequence[str],
    now: dt.datetime,
    lifetimes: CertificateLifetimes,
) -> WebhookCertificates:
    key = _new_key()
    end = min(now + lifetimes.serving, authority.not_valid_after_utc)
    certificate = (
        _builder(key, f"{_NAME} {names[0]}"[:64], now, end)
        .issuer_name(authority.subject)
        .add_extension(x509.SubjectAlternativeName(map(_general_name, names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(_public_key(authority)),
            critical=False,
        )
        .sign(_key(old.authority_key), hashes.SHA256())
    )
    return replace(old, certificate=_pem(certificate), key=_key_pem(key))


def _authority(
    key: ec.EllipticCurvePrivateKey, now: dt.datetime, life: dt.timedelta
) -> x509.Certificate:
    # The name is unique: two CAs of one name would confuse chain building.
    name = f"{_NAME} CA {now:%Y-%m-%dT%H:%M:%S.%fZ}"
    builder = _builder(key, name, now, now + life)
    return (
        builder.issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_USAGE, critical=True)
        .sign(key, hashes.SHA256())
    )


def _builder(
    key: ec.EllipticCurvePrivateKey, name: str, now: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
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


def _is_due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    end = certificate.not_valid_after_utc
    return end - now < (end - certificate.not_valid_before_utc - _BACKDATE) / 3


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an EC key")  # noqa: TRY004 as for any bad PEM
    return key


def _public_key(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
