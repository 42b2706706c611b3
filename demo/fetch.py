"""`python -m demo.fetch URL`: print the response of a local URL, without an HTTP proxy."""

from __future__ import annotations

import http.client
import os
import shutil
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response; `server` is its header of that name."""

    status: int
    server: str
    body: str


def fetch(url: str, seconds: float = _SECONDS) -> Answer:
    """GET an http URL. Raises OSError or HTTPException where nothing answers."""
    parts = urlsplit(url)
    path = parts.path or "/"
    connection = http.client.HTTPConnection(parts.netloc, timeout=seconds)
    try:
        connection.request("GET", f"{path}?{parts.query}" if parts.query else path)
        response = connection.getresponse()
        body = response.read().decode(errors="replace")
        return Answer(response.status, response.getheader("Server", "an unnamed server"), body)
    finally:
        connection.close()


def command_for(url: str) -> str:
    """Return a command for the user's shell that fetches the URL with what there is."""
    if shutil.which("curl") and not {"http_proxy", "HTTP_PROXY"} & set(os.environ):
        return f"curl -s '{url}'"
    return f".venv/bin/python -m demo.fetch '{url}'"


if __name__ == "__main__":
    sys.stdout.write(fetch(sys.argv[1]).body)
