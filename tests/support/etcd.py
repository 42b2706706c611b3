"""Read the bytes of objects in the etcd of a local cluster."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.request
from typing import Any

from operator_runner.devcluster import Cluster
from operator_runner.devcluster.supervision import load_state


class Etcd:
    """Sends requests to etcd's JSON gateway, with the API server's identity."""

    def __init__(self, cluster: Cluster) -> None:
        """Find the port and the certificates of a cluster that is up."""
        state = load_state(cluster.home)
        assert state is not None
        command = next(part.command for part in state.parts if part.name == "etcd")
        flags = dict(flag.partition("=")[::2] for flag in command)
        self._url = flags["--listen-client-urls"]
        self._tls = ssl.create_default_context(cafile=flags["--trusted-ca-file"])
        self._tls.load_cert_chain(flags["--cert-file"], flags["--key-file"])

    def objects(self, group: str, plural: str) -> dict[str, Any]:
        """Return the stored custom resources by `namespace/name`."""
        prefix = f"/registry/{group}/{plural}/"
        after = prefix[:-1] + "0"  # the character after the slash
        found = self._request("kv/range", key=_base64(prefix), range_end=_base64(after))
        return {
            base64.b64decode(entry["key"]).decode().removeprefix(prefix): json.loads(
                base64.b64decode(entry["value"])
            )
            for entry in found.get("kvs", [])
        }

    def versions(self, group: str, plural: str) -> dict[str, str]:
        """Return in which version each custom resource is stored, by its name."""
        stored = self.objects(group, plural)
        return {
            path.rpartition("/")[2]: body["apiVersion"].rpartition("/")[2]
            for path, body in stored.items()
        }

    def compact(self) -> None:
        """Forget all revisions but the last one, as happens after some minutes."""
        revision = self._request("kv/range", key=_base64("/"))["header"]["revision"]
        self._request("kv/compaction", revision=revision, physical=True)

    def _request(self, what: str, **body: Any) -> Any:
        request = urllib.request.Request(
            f"{self._url}/v3/{what}", data=json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
            return json.load(answer)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
