"""The certificates of the operator's own servers: of its CA, and self-signed ones.

Webhook and Jobs have certificates of a CA, whose issuance and renewal are pure. The API server
trusts a bundle of CAs. A new CA is added to it long before the old one expires, and signs
certificates only after the bundle has propagated, so that the API server always trusts the
certificate of every replica.

Proxy and metrics have self-signed ones, created at each start. The proxy needs TLS because
client-go, and so kubectl and helm, sends no token over plain HTTP. The metrics server needs it to
protect the tokens of scrapers. The private key is only in memory, and is loaded without a file that
another process could open.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from operator_runner.net import x509

_NAME = "operator-runner webhook"
_VALIDITY = dt.timedelta(days=3650)
"""Of self-signed certificates, which end with the process."""


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
class CertificateBundle:
    """Certificates and keys that all replicas share, as PEM; `authorities` is newest first."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    @property
    def newest(self) -> bytes:
        """Return the CA that signs."""
        return x509.certificate_pem(x509.load_certificates(self.authorities)[0])


def renew(
    old: CertificateBundle | None,
    names: Sequence[str],
    now: dt.datetime,
    *,
    is_published: bool,
    lifetimes: CertificateLifetimes,
) -> CertificateBundle:
    """Return the certificates to use: `old` itself unless it must be renewed.

    `names` are the DNS names and addresses of the server; `is_published` is whether the bundle of
    the API server contains the newest CA.
    """
    try:
        return (
            _renew(old, names, now, is_published=is_published, lifetimes=lifetimes)
            if old
            else _new(names, now, lifetimes)
        )
    except (ValueError, IndexError):
        # Not created by this module, and unusable: replace it.
        return _new(names, now, lifetimes)


def expiry(certificate: bytes) -> dt.datetime:
    """Return when a PEM certificate expires; raises ValueError if it is invalid."""
    return x509.load_certificates(certificate)[0].not_valid_after_utc


def _renew(
    old: CertificateBundle,
    names: Sequence[str],
    now: dt.datetime,
    *,
    is_published: bool,
    lifetimes: CertificateLifetimes,
) -> CertificateBundle:
    authorities = x509.load_certificates(old.authorities)
    valid = [each for each in authorities if each.not_valid_after_utc > now]
    if not valid:
        return _new(names, now, lifetimes)
    x509.load_key(old.authority_key)
    x509.load_key(old.key)
    result = old
    if len(valid) < len(authorities):
        result = replace(result, authorities=b"".join(map(x509.certificate_pem, valid)))
    if _is_due(valid[0], now):
        key = x509.new_key()
        valid = [_authority(key, now, lifetimes.authority), *valid]
        return replace(
            result,
            authorities=b"".join(map(x509.certificate_pem, valid)),
            authority_key=x509.key_pem(key),
        )
    serving = x509.load_certificates(old.certificate)[0]
    is_renewal_due = (
        _is_due(serving, now)
        or set(x509.alternative_names(serving)) != set(names)
        or not x509.is_issued_by(serving, valid[0])
    )
    since = now - valid[0].not_valid_before_utc - x509.BACKDATE
    if is_renewal_due and (len(valid) == 1 or (is_published and since >= lifetimes.propagation)):
        return _sign(result, valid[0], names, now, lifetimes)
    return result


def _new(
    names: Sequence[str], now: dt.datetime, lifetimes: CertificateLifetimes
) -> CertificateBundle:
    key = x509.new_key()
    authority = _authority(key, now, lifetimes.authority)
    unsigned = CertificateBundle(x509.certificate_pem(authority), x509.key_pem(key), b"", b"")
    return _sign(unsigned, authority, names, now, lifetimes)


def _sign(
    old: CertificateBundle,
    authority: x509.Certificate,
    names: Sequence[str],
    now: dt.datetime,
    lifetimes: CertificateLifetimes,
) -> CertificateBundle:
    key = x509.new_key()
    certificate = x509.issue(
        key,
        x509.subject_name(f"{_NAME} {names[0]}"[:64]),
        (authority, x509.load_key(old.authority_key)),
        now=now,
        lifetime=lifetimes.serving,
        names=names,
    )
    return replace(old, certificate=x509.certificate_pem(certificate), key=x509.key_pem(key))


def _authority(key: x509.PrivateKey, now: dt.datetime, lifetime: dt.timedelta) -> x509.Certificate:
    # The name is unique: two CAs of one name would confuse chain building.
    name = x509.subject_name(f"{_NAME} CA {now:%Y-%m-%dT%H:%M:%S.%fZ}")
    return x509.issue_ca(key, name, now=now, lifetime=lifetime)


def _is_due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    end = certificate.not_valid_after_utc
    return end - now < (end - certificate.not_valid_before_utc - x509.BACKDATE) / 3


def load_cert_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate (PEM, with its chain) and its key. Raises ssl.SSLError and OSError.

    The ssl module only reads files: these are in memory and exist during the call only.
    """
    with _memory_file(certificate) as first, _memory_file(key) as second:
        context.load_cert_chain(first, second)


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("tls")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


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
    key = x509.new_key()
    now = dt.datetime.now(dt.UTC)
    pem = x509.certificate_pem(
        x509.issue_ca(key, x509.subject_name(name), now=now, lifetime=_VALIDITY, names=names)
    )
    certificate.write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_cert_chain(context, pem, x509.key_pem(key))
    return context
