"""Filters of the role etcd: merge the members of etcd and their Pods into one list. Pure."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

_ENDED = ("Failed", "Succeeded")
_MESSAGE = 500
_CRASHES = 5
"""Restarts after which a container that keeps crashing is given up."""


def etcd_pods(owned: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the Pods of the cluster, each as a flat map, by name.

    `alive` is false for a Pod that has ended, is being deleted or keeps crashing. `ready` is true
    once the Pod is ready with the image of its spec.
    """
    return sorted(map(_flat, owned), key=lambda pod: str(pod["name"]))


def etcd_members(listed: list[dict[str, Any]], pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the members that `etcdctl member list` has listed, with the fields of their Pods.

    The name of a Pod is that of the host in its peer URL: a member that has not started yet has no
    name. `exists` is false for a member without a Pod.
    """
    by_name = {pod["name"]: pod for pod in pods}
    members = []
    for member in listed:
        (url,) = member["peerURLs"]
        name = str(urlsplit(url).hostname).partition(".")[0]
        missing = {"exists": False, "alive": False, "ready": False, "version": ""}
        own = {
            "name": name,
            "number": etcd_number(name),
            "id": f"{member['ID']:x}",
            "peer": f"{name}={url}",
            "voter": not member.get("isLearner", False),
            "started": bool(member.get("name")),
        }
        members.append({**missing, **by_name.get(name, {}), **own})
    return sorted(members, key=lambda member: int(str(member["number"])))


def etcd_number(name: str) -> int:
    """Return the number at the end of the name of a Pod, -1 without one."""
    found = re.search(r"-(\d+)$", name)
    return int(found[1]) if found else -1


def etcd_newest_backup(
    backups: list[dict[str, Any]], service: str, namespace: str
) -> dict[str, Any]:
    """Return the newest EtcdBackup whose endpoints have a Service of this namespace."""
    found = [
        backup
        for backup in backups
        if backup.get("status", {}).get("lastSuccessDate")
        and any(
            _service(url) in {(service,), (service, namespace)}
            for url in backup["spec"]["etcdEndpoints"]
        )
    ]
    return max(found, key=lambda backup: str(backup["status"]["lastSuccessDate"]), default={})


def etcd_restore_source(backup: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the status fields of a cluster about the backup to restore."""
    spec = backup["spec"]
    return {
        # Another failure restores the same backup again.
        "uid": f"{backup['metadata']['uid']}-{number}",
        "storageType": spec["storageType"],
        "claimName": spec.get("persistentVolume", {}).get("claimName", ""),
        "gcpSecret": spec.get("gcs", {}).get("gcpSecret", ""),
        "path": backup["status"]["path"],
    }


def etcd_minor(version: str) -> list[int]:
    """Return major and minor number of a version such as `3.6.8`."""
    return [int(part) for part in version.split(".")[:2]]


def _service(url: str) -> tuple[str, ...]:
    """Return the name of a Service in a URL, with its namespace if that is named too."""
    return tuple(str(urlsplit(url).hostname).split(".")[:2])


def _flat(pod: dict[str, Any]) -> dict[str, Any]:
    status, metadata = pod.get("status", {}), pod["metadata"]
    image = pod["spec"]["containers"][0]["image"]
    container: dict[str, Any] = next(iter(status.get("containerStatuses", [])), {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
    crashing = (
        container.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff"
        and container["restartCount"] >= _CRASHES
    )
    alive = (
        "deletionTimestamp" not in metadata and status.get("phase") not in _ENDED and not crashing
    )
    # Docker's short names are completed by the node.
    runs = str(container.get("image", "")).endswith(image)
    return {
        "name": metadata["name"],
        "number": etcd_number(metadata["name"]),
        "exists": True,
        "problem": _problem(status),
        "alive": alive,
        "ready": alive and runs and conditions.get("Ready") == "True",
        "image": image,
        "version": image.rpartition(":v")[2],
    }


def _problem(status: dict[str, Any]) -> str:
    """Return why a container of a Pod does not start, or how its data could not be restored."""
    containers = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
    for container in containers:
        waiting = container.get("state", {}).get("waiting", {})
        terminated = container.get("lastState", {}).get("terminated", {})
        if container["name"] in {"fetch", "restore"} and terminated.get("message"):
            return str(terminated["message"]).strip()[-_MESSAGE:]
        if waiting.get("message"):
            return str(waiting["message"])[:_MESSAGE]
    return ""


class FilterModule:
    """The filters, for Ansible."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        functions = (
            *(etcd_pods, etcd_members, etcd_number, etcd_minor),
            *(etcd_newest_backup, etcd_restore_source),
        )
        return {function.__name__: function for function in functions}
