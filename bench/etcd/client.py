"""A client of etcd: its JSON gateway, a new connection for each request."""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 5.0


class NotAcknowledged(Exception):
    """The server has not answered, or not with success; a write may have been carried out."""


@dataclass(frozen=True, slots=True)
class EtcdClient:
    """Reads and writes keys of a cluster."""

    address: str
    """`host:port` of its Service or of a member."""
    tls: ssl.SSLContext | None = None

    def put(self, key: str, value: str) -> None:
        """Write a key. Raises NotAcknowledged."""
        self._request("kv/put", key=_encoded(key), value=_encoded(value))

    def get(self, key: str) -> str | None:
        """Return the value that the majority has, None without one. Raises NotAcknowledged."""
        found = self._request("kv/range", key=_encoded(key)).get("kvs", [])
        return _decoded(found[0].get("value", "")) if found else None

    def values(self, prefix: str) -> dict[str, str]:
        """Return all keys below a prefix with their values. Raises NotAcknowledged."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self._request("kv/range", key=_encoded(prefix), range_end=_encoded(after))
        return {
            _decoded(entry["key"]): _decoded(entry.get("value", ""))
            for entry in found.get("kvs", [])
        }

    def learners(self) -> dict[str, bool]:
        """Return whether each member is a learner, by the host of its peer URL.

        The request goes to one member, even without a majority. Raises NotAcknowledged.
        """
        listed = self._request("cluster/member/list", linearizable=False)["members"]
        hosts = [str(urlsplit(member["peerURLs"][0]).hostname) for member in listed]
        return {
            host.partition(".")[0]: bool(member.get("isLearner"))
            for host, member in zip(hosts, listed, strict=True)
        }

    def _request(self, path: str, **body: Any) -> dict[str, Any]:
        connection = self._connection()
        try:
            connection.request("POST", f"/v3/{path}", json.dumps(body))
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status != HTTPStatus.OK:
                raise NotAcknowledged(f"{self.address}: {text}")
            return dict(json.loads(text))
        except (OSError, HTTPException, ValueError) as error:
            raise NotAcknowledged(f"{self.address}: {error!r}") from error
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        if self.tls is None:
            return HTTPConnection(self.address, timeout=_TIMEOUT_SECONDS)
        return HTTPSConnection(self.address, timeout=_TIMEOUT_SECONDS, context=self.tls)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
