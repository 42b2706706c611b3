"""Google Cloud Storage as far as backups need it: its JSON API, and tokens of service accounts."""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

_ACCOUNT = "backup@example.iam.gserviceaccount.com"


class GcsEmulator:
    """Stores objects in memory for clients with a token of its service account."""

    def __init__(self, host: str) -> None:
        """Listen on a free port of an address that Pods reach."""
        self.objects: dict[str, bytes] = {}
        """By bucket and name: `backups/a.db`."""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._token = secrets.token_urlsafe()
        self._server = ThreadingHTTPServer((host, 0), self._handler())
        self.url = f"http://{host}:{self._server.server_port}"

    def credentials(self, key: rsa.RSAPrivateKey | None = None) -> str:
        """Return the key file of the service account, or one with another key."""
        pem = (key or self._key).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        body = {
            "type": "service_account",
            "private_key": pem.decode(),
            "client_email": _ACCOUNT,
            "token_uri": f"{self.url}/token",
        }
        return json.dumps(body, indent=2)

    @contextmanager
    def serving(self) -> Iterator[GcsEmulator]:
        """Serve for as long as the context lasts."""
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _is_signed(self, assertion: str) -> bool:
        """Return True if a JSON Web Token is signed by the key of the service account."""
        signed, _, signature = assertion.rpartition(".")
        claims = json.loads(_decoded(signed.partition(".")[2]))
        try:
            self._key.public_key().verify(
                _decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            return False
        return bool(claims["iss"] == _ACCOUNT and claims["aud"] == f"{self.url}/token")

    def _answer(self, method: str, target: str, token: str, body: bytes) -> tuple[int, bytes]:
        url = urlsplit(target)
        if url.path == "/token":
            if self._is_signed(parse_qs(body.decode())["assertion"][0]):
                return 200, json.dumps({"access_token": self._token}).encode()
            return 400, b'{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}'
        if token != f"Bearer {self._token}":
            return 401, b'{"error": {"code": 401, "message": "Invalid Credentials"}}'
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        bucket, _, name = url.path.partition("/b/")[2].partition("/o")
        if method == "GET" and not name:
            return 200, self._list(f"{bucket}/{query.get('prefix', '')}")
        key = f"{bucket}/{query.get('name') or unquote(name).removeprefix('/')}"
        return self._object(method, key, body)

    def _list(self, prefix: str) -> bytes:
        found = [key.partition("/")[2] for key in self.objects if key.startswith(prefix)]
        return json.dumps({"items": [{"name": each} for each in sorted(found)]}).encode()

    def _object(self, method: str, key: str, body: bytes) -> tuple[int, bytes]:
        if method == "POST":
            self.objects[key] = body
            return 200, b"{}"
        if key not in self.objects:
            return 404, b'{"error": {"code": 404, "message": "No such object"}}'
        if method == "DELETE":
            del self.objects[key]
            return 204, b""
        return 200, self.objects[key]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        emulator = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                token = self.headers.get("Authorization", "")
                status, answer = emulator._answer(self.command, self.path, token, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_DELETE = _serve  # noqa: N815 (names of the standard library)

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        return Handler


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
