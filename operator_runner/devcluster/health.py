"""Check the health of the cluster's parts."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from typing import Any

from operator_runner.devcluster.locations import Home

ESTABLISHED = '--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True'
"""Argument of `kubectl wait` for new CRDs: `--for=condition` fails without conditions."""
_TIMEOUT_SECONDS = 5.0


class Prober:
    """Asks with the cluster's own certificates, so that only its own parts can answer."""

    def __init__(self, home: Home) -> None:
        """Load the administrator's certificate from the cluster's home."""
        context = ssl.create_default_context(cafile=str(home.pki / "ca.crt"))
        context.load_cert_chain(home.pki / "admin.crt", home.pki / "admin.key")
        self._opener = urllib.request.build_opener(
            # No proxy of the user's environment may come between.
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
        )

    def problem(self, address: str) -> str | None:
        """Return None if the part at `address` is well, else what is wrong in a few words."""
        if address.startswith("unix:"):
            return _problem(socket.AF_UNIX, address.removeprefix("unix:"))
        if address.startswith("tcp:"):
            host, _, port = address.removeprefix("tcp:").rpartition(":")
            return _problem(socket.AF_INET, (host, int(port)))
        return self._answer(address)[1]

    def object_at(self, url: str) -> dict[str, Any] | None:
        """Return the API object at `url`, or None if the server does not give it (yet)."""
        body, problem = self._answer(url)
        if problem is not None:
            return None
        loaded: dict[str, Any] = json.loads(body)
        return loaded

    def _answer(self, url: str) -> tuple[bytes, str | None]:
        try:
            with self._opener.open(url, timeout=_TIMEOUT_SECONDS) as response:
                return response.read(), None
        except urllib.error.HTTPError as error:
            with error:
                return b"", f"answers {error.code}"
        except urllib.error.URLError as error:
            return b"", f"no answer: {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            return b"", f"no answer: {error}"


def _problem(family: socket.AddressFamily, address: str | tuple[str, int]) -> str | None:
    with socket.socket(family) as client:
        client.settimeout(_TIMEOUT_SECONDS)
        try:
            client.connect(address)
        except OSError as error:
            return f"no answer: {error.strerror or error}"
    return None
