"""Keys and certificates of a local cluster, created at each start."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from operator_runner.devcluster import files
from operator_runner.net import x509

_VALIDITY = dt.timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Files of a certificate and its private key, both PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that signs into one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        """Create the authority's own key pair as `name`.crt and `name`.key in `folder` (0700)."""
        self._folder = folder
        self._key = x509.new_key()
        self._certificate = x509.issue_ca(
            self._key, x509.subject_name(name), now=dt.datetime.now(dt.UTC), lifetime=_VALIDITY
        )
        self.pair = _store(folder, name, self._certificate, self._key)

    def client(self, file: str, user: str, group: str | None = None) -> KeyPair:
        """Sign a client certificate: Kubernetes reads CN as the user and O as the group."""
        return self._sign(file, x509.subject_name(user, group), ())

    def server(self, file: str, names: Sequence[str]) -> KeyPair:
        """Sign a certificate for the DNS names and IP addresses `names`.

        It is also a client certificate: etcd uses one pair for both.
        """
        return self._sign(file, x509.subject_name(file), names)

    def _sign(self, file: str, subject: x509.Name, names: Sequence[str]) -> KeyPair:
        key = x509.new_key()
        certificate = x509.issue(
            key,
            subject,
            (self._certificate, self._key),
            now=dt.datetime.now(dt.UTC),
            lifetime=_VALIDITY,
            names=names,
            purposes=[x509.CLIENT_AUTH, *([x509.SERVER_AUTH] if names else [])],
        )
        return _store(self._folder, file, certificate, key)


def signing_key(path: Path) -> Path:
    """Write a private key for signing service account tokens (ES256) to `path`."""
    return files.write(path, _key_pem(x509.new_key()))


def _store(folder: Path, name: str, certificate: x509.Certificate, key: x509.PrivateKey) -> KeyPair:
    return KeyPair(
        files.write(folder / f"{name}.crt", x509.certificate_pem(certificate)),
        files.write(folder / f"{name}.key", _key_pem(key)),
    )


def _key_pem(key: x509.PrivateKey) -> bytes:
    # The API server finds no public key in the PKCS#8 form of an elliptic key.
    return x509.key_pem(key, traditional=True)
