"""When certificates and authorities are made, through years of an operator's life."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from cryptography import x509

from operator_runner.net.certificates import (
    CertificateBundle,
    CertificateLifetimes,
    expiry,
    renew,
)

LIVES = CertificateLifetimes()
START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
NAMES = ("webhook.shop.svc",)
DAY = dt.timedelta(days=1)


def make(
    old: CertificateBundle | None, now: dt.datetime = START, *, is_published: bool = True
) -> CertificateBundle:
    return renew(old, NAMES, now, is_published=is_published, lifetimes=LIVES)


def bundle(made: CertificateBundle) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(made.authorities)


def is_trusted(made: CertificateBundle, trusted: CertificateBundle, now: dt.datetime) -> bool:
    """Return True if a client with the bundle of `trusted` accepts the certificate of `made`."""
    certificate = x509.load_pem_x509_certificate(made.certificate)
    store = x509.verification.Store(bundle(trusted))
    verifier = x509.verification.PolicyBuilder().store(store).time(now)
    try:
        verifier.build_server_verifier(x509.DNSName(NAMES[0])).verify(certificate, [])
    except x509.verification.VerificationError:
        return False
    return True


def test_the_first_one_is_complete() -> None:
    """One authority, and a certificate of it for the names of the server."""
    made = make(None, is_published=False)
    assert len(bundle(made)) == 1
    assert is_trusted(made, made, START)
    assert expiry(made.certificate) == START + LIVES.serving
    certificate = x509.load_pem_x509_certificate(made.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(NAMES)


def test_nothing_is_renewed_before_its_time() -> None:
    """The same certificates are returned, so that nothing is written."""
    made = make(None)
    for days in (1, 30, 59):
        assert make(made, START + days * DAY) is made


def test_a_certificate_is_renewed_under_the_same_authority() -> None:
    """The CA bundle is unchanged."""
    made = make(None)
    later = make(made, START + 61 * DAY)
    assert later.authorities == made.authorities
    assert later.certificate != made.certificate
    assert is_trusted(later, made, START + 61 * DAY)


def test_years_of_renewals_leave_no_gap() -> None:
    """A client with the previous bundle trusts the certificates of all replicas."""
    now, shown = START, make(None)
    published = shown
    authorities = set()
    while now < START + 1200 * DAY:
        new = make(shown, now, is_published=shown.newest in published.authorities)
        # One API server has the bundle of the last look, one has the new one already; one
        # replica shows the last certificate still, one the new one.
        for certificate in (shown, new):
            for trusted in (published, new):
                assert is_trusted(certificate, trusted, now), now
        published, shown = new, new
        authorities.add(new.newest)
        now += 3 * DAY
    assert len(authorities) == 5
    assert len(bundle(shown)) <= 2


def test_a_new_authority_signs_only_after_its_propagation() -> None:
    """Neither before the CRD has it, nor at the same moment."""
    made = make(None)
    due = START + 250 * DAY
    with_new = make(replace(make(made, due - DAY)), due, is_published=True)
    assert len(bundle(with_new)) == 2
    old_certificate = with_new.certificate
    soon, later = due + LIVES.propagation / 2, due + LIVES.propagation
    assert make(with_new, soon, is_published=True).certificate == old_certificate
    assert make(with_new, later, is_published=False).certificate == old_certificate
    signed = make(with_new, later, is_published=True)
    assert x509.load_pem_x509_certificate(signed.certificate).issuer == bundle(with_new)[0].subject


def test_expired_certificates_are_replaced() -> None:
    """Nothing of old is of use; nothing is waited for."""
    made = make(make(None), START + 1000 * DAY)
    assert len(bundle(made)) == 1
    assert is_trusted(made, made, START + 1000 * DAY)


def test_other_names_need_another_certificate() -> None:
    """A renamed Service is answered under its new name."""
    made = make(None)
    other = renew(made, ["other.shop.svc"], START, is_published=True, lifetimes=LIVES)
    assert other.authorities == made.authorities
    assert other.certificate != made.certificate


@pytest.mark.parametrize("field", ["authorities", "authority_key", "certificate", "key"])
@pytest.mark.parametrize("content", [b"", b"rubbish"])
def test_unreadable_certificates_are_replaced(field: str, content: bytes) -> None:
    """An edited Secret does not stop the operator."""
    made = make(replace(make(None), **{field: content}))
    assert is_trusted(made, made, START)
    assert content not in {made.authorities, made.authority_key, made.certificate, made.key}
