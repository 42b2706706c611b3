"""The operator's own certificate authority, for webhook and Jobs: issuance and renewal. Pure.

The API server trusts a bundle of CAs. A new CA is added to it long before the old one expires,
and signs certificates only after the bundle has propagated, so that the API server always trusts
the certificate of every replica.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace

from operator_runner.net import x509

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
