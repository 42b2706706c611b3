"""The operator's own certificate authority for its webhook: what to make, and when. Pure.

The API server trusts a bundle of authorities. A new authority joins it well before the old one
ends, and signs only when the bundle with it has had time to get around; so every certificate
that a replica shows is trusted at any time.
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

_EARLY = dt.timedelta(hours=1)
"""Clocks of different machines differ."""
_NAME = "operator-runner webhook"


@dataclass(frozen=True, slots=True)
class Lives:
    """How long certificates live; each is renewed when a third of its life is left."""

    authority: dt.timedelta = dt.timedelta(days=365)
    serving: dt.timedelta = dt.timedelta(days=90)
    spreading: dt.timedelta = dt.timedelta(minutes=1)
    """From a new authority to the first certificate of it: all API servers know it by then."""

    @property
    def look(self) -> dt.timedelta:
        """Time between two looks: every replica looks several times while a CA spreads."""
        return self.spreading / 6


@dataclass(frozen=True, slots=True)
class Credentials:
    """What all replicas share, each as PEM: `authorities` is the bundle, newest first."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    @property
    def newest(self) -> bytes:
        """The authority that signs."""
        return _pem(x509.load_pem_x509_certificates(self.authorities)[0])


def renewed(
    old: Credentials | None, names: Sequence[str], now: dt.datetime, *, known: bool, lives: Lives
) -> Credentials:
    """Return what is to be used from now on: `old` itself as long as nothing is due.

    `names` are the DNS names and addresses of the server; `known` is whether the newest
    authority is in the bundle that the API server has.
    """
    try:
        return (
            _renewed(old, names, now, known=known, lives=lives) if old else _new(names, now, lives)
        )
    except (ValueError, IndexError, x509.ExtensionNotFound):
        # Not what this module has made; nobody can use it, so there is nothing to lose.
        return _new(names, now, lives)


def expires(certificate: bytes) -> dt.datetime:
    """Return when a PEM certificate ends; raises ValueError if it is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _renewed(
    old: Credentials, names: Sequence[str], now: dt.datetime, *, known: bool, lives: Lives
) -> Credentials:
    everyone = x509.load_pem_x509_certificates(old.authorities)
    alive = [each for each in everyone if each.not_valid_after_utc > now]
    if not alive:
        return _new(names, now, lives)
    _key(old.authority_key)
    _key(old.key)
    result = old
    if len(alive) < len(everyone):
        result = replace(result, authorities=b"".join(map(_pem, alive)))
    if _is_due(alive[0], now):
        key = _new_key()
        alive = [_authority(key, now, lives.authority), *alive]
        return replace(result, authorities=b"".join(map(_pem, alive)), authority_key=_key_pem(key))
    serving = x509.load_pem_x509_certificate(old.certificate)
    wanted = (
        _is_due(serving, now)
        or set(_names(serving)) != set(names)
        or not _is_signed_by(serving, alive[0])
    )
    since = now - alive[0].not_valid_before_utc - _EARLY
    if wanted and (len(alive) == 1 or (known and since >= lives.spreading)):
        return _sign(result, alive[0], names, now, lives)
    return result


def _new(names: Sequence[str], now: dt.datetime, lives: Lives) -> Credentials:
    key = _new_key()
    authority = _authority(key, now, lives.authority)
    unsigned = Credentials(_pem(authority), _key_pem(key), b"", b"")
    return _sign(unsigned, authority, names, now, lives)


def _sign(
    old: Credentials,
    authority: x509.Certificate,
    names: Sequence[str],
    now: dt.datetime,
    lives: Lives,
) -> Credentials:
    key = _new_key()
    end = min(now + lives.serving, authority.not_valid_after_utc)
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
    # The name tells authorities apart: two of one name would confuse whoever builds chains.
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
        .not_valid_before(now - _EARLY)
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
    return end - now < (end - certificate.not_valid_before_utc - _EARLY) / 3


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
        raise ValueError("not a key that was made here")  # noqa: TRY004 as for any bad PEM
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
