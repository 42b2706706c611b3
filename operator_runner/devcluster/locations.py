"""Locations of files of a local cluster, and writes that are whole or not at all.

The user's cache has what all clusters share; each cluster has a private folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from operator_runner.devcluster.errors import ClusterError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


class Home:
    """The folder of one cluster (0700), with all its files."""

    def __init__(self, path: Path) -> None:
        """Take the folder, which need not exist yet."""
        self.path = path
        self.state = path / "state.json"
        """File with the running processes: see `supervision.py`."""
        self.kubeconfig = path / "kubeconfig"
        """The administrator's kubeconfig (0600)."""
        self.bin = path / "bin"
        """Programs for the user: `kubectl` with this cluster's kubeconfig preset."""
        self.tools = path / "tools"
        """Programs that go by KUBECONFIG, as those of other clusters do."""
        self.kubectl_cache = path / "kubectl-cache"
        """What kubectl caches of this cluster's discovery; a later one may have its address."""
        self.pki = path / "pki"
        """Keys, certificates and the kubeconfigs of the parts (0700)."""
        self.logs = path / "logs"
        """One log file a part; they outlive a failed start."""
        self.etcd = path / "etcd"
        """The data of etcd."""
        self.node = self.node_folder(1)
        """Everything that the first node writes."""
        self.volumes = path / "volumes"
        """The data of PersistentVolumes, a folder each."""
        self.catalogs = path / "olm" / "catalogs"
        """The catalogs that OLM installs from, a folder each; below one that is OLM's alone."""
        self.token = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
        """Eight hex digits that name this cluster's link and cgroup on the machine.

        They follow from the path, so that a later command finds what an interrupted one left.
        """

    def node_folder(self, number: int) -> Path:
        """Return the folder of a node, whose numbers begin with 1."""
        return self.path / name_on_node("node", number)

    def log_of(self, part: str) -> Path:
        """Return the log file of a part."""
        return self.logs / f"{part}.log"


def name_on_node(name: str, number: int) -> str:
    """Return the name of a node's part, folder or file; those of the first node have no number."""
    return name if number == 1 else f"{name}-{number}"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for files that all clusters of the user share."""
    return _base(environment, "XDG_CACHE_HOME", ".cache") / "operator-runner"


def clusters_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder that holds the homes of all clusters of the user."""
    return _base(environment, "XDG_STATE_HOME", ".local/state") / "operator-runner" / "clusters"


def home_of(name: str, environment: Mapping[str, str]) -> Home:
    """Return the folder of the cluster `name`; it need not exist yet."""
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"invalid cluster name {name!r}",
            hint="Use at most 40 lower-case letters, digits and inner dashes.",
        )
    # Resolved, because programs are marked with it and names on the machine follow from it.
    return Home(clusters_folder(environment).resolve() / name)


def _base(environment: Mapping[str, str], variable: str, fallback: str) -> Path:
    # The XDG base directory specification ignores relative paths.
    given = Path(environment.get(variable, ""))
    return given if given.is_absolute() else Path.home() / fallback


def private_folder(path: Path) -> Path:
    """Create `path` and its missing parents with mode 0700; return it."""
    missing = [path, *path.parents]
    for folder in reversed([folder for folder in missing if not folder.exists()]):
        folder.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)
    return path


def write_file(path: Path, content: str | bytes, *, mode: int = 0o600) -> Path:
    """Replace the file at `path` in one step; readers see the old or the new content."""
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
    draft.replace(path)
    return path


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Wait until no other process has locked the file `path`, which is made, and lock it.

    `on_wait` is called if another process has locked it.
    """
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
