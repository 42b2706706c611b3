"""Keys and X.509 certificates. The only module that uses the `cryptography` library."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Certificate: TypeAlias = x509.Certificate
PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey
Name: TypeAlias = x509.Name

CLIENT_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER_AUTH = ExtendedKeyUsageOID.SERVER_AUTH

BACKDATE = dt.timedelta(hours=1)
"""Time before `now` at which certificates become valid: clocks differ, and step back."""


def new_key() -> PrivateKey:
    """Generate a private key."""
    return ec.generate_private_key(ec.SECP256R1())


def load_key(pem: bytes) -> PrivateKey:
    """Decode a private key in PEM; raises ValueError if it is not an EC key."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an EC key")  # noqa: TRY004 as for any bad PEM
    return key


def load_certificates(pem: bytes) -> list[Certificate]:
    """Decode the certificates in PEM; raises ValueError if it contains no certificate."""
    return x509.load_pem_x509_certificates(pem)


def key_pem(key: PrivateKey, *, traditional: bool = False) -> bytes:
    """Encode a private key as PEM: PKCS#8, or with `traditional` the format of OpenSSL."""
    formats = serialization.PrivateFormat
    return key.private_bytes(
        serialization.Encoding.PEM,
        formats.TraditionalOpenSSL if traditional else formats.PKCS8,
        serialization.NoEncryption(),
    )


def certificate_pem(certificate: Certificate) -> bytes:
    """Encode a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def subject_name(common_name: str, organization: str | None = None) -> Name:
    """Return the name of a subject."""
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def issue_ca(
    key: PrivateKey,
    subject: Name,
    *,
    now: dt.datetime,
    lifetime: dt.timedelta,
    names: Sequence[str] = (),
) -> Certificate:
    """Return a self-signed CA certificate; with `names` it is a serving certificate as well."""
    builder = _builder(
        key, subject, (now - BACKDATE, now + lifetime), names, [SERVER_AUTH] if names else []
    )
    return _sign(builder.issuer_name(subject), key, is_ca=True)


def issue(
    key: PrivateKey,
    subject: Name,
    issuer: tuple[Certificate, PrivateKey],
    *,
    now: dt.datetime,
    lifetime: dt.timedelta,
    names: Sequence[str] = (),
    purposes: Sequence[x509.ObjectIdentifier] = (SERVER_AUTH,),
) -> Certificate:
    """Return a certificate that a CA has signed; it expires with the CA at the latest.

    `names` are DNS names and IP addresses, `purposes` the extended key usages.
    """
    ca, ca_key = issuer
    until = min(now + lifetime, ca.not_valid_after_utc)
    builder = _builder(key, subject, (now - BACKDATE, until), names, purposes)
    return _sign(builder.issuer_name(ca.subject), ca_key, is_ca=False)


def is_issued_by(certificate: Certificate, ca: Certificate) -> bool:
    """Return whether a CA has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def alternative_names(certificate: Certificate) -> list[str]:
    """Return the DNS names and IP addresses of a certificate; raises ValueError without any."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound as error:
        raise ValueError("the certificate has no subject alternative names") from error
    return [str(name.value) for name in names.value]


def _builder(
    key: PrivateKey,
    subject: Name,
    validity: tuple[dt.datetime, dt.datetime],
    names: Sequence[str],
    purposes: Sequence[x509.ObjectIdentifier],
) -> x509.CertificateBuilder:
    public = key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    if names:
        alternatives = x509.SubjectAlternativeName(map(_general_name, names))
        builder = builder.add_extension(alternatives, critical=False)
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return builder


def _sign(builder: x509.CertificateBuilder, key: PrivateKey, *, is_ca: bool) -> Certificate:
    constraints = x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    # Python 3.13 and newer accept no issued certificate without it.
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return (
        builder.add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
        .add_extension(issuer, critical=False)
        .sign(key, hashes.SHA256())
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
