"""Manage the directories of runs: private data dirs of ansible-runner, and temporary ones.

A resource has one private data dir with mode 0700, in the layout of ansible-operator:
`<work dir>/<group>/<version>/<kind>/<namespace>/<name>` with env/, inventory/, project/ and
artifacts/<run id>/ in it. A run can access only its own.

Each run has a temporary directory: TMPDIR, home directory, and the discovery that runs share. Its
name is a secret of the run and of the operator, because a process of the same user could
otherwise change its mode, or use its sockets. Python clients of the API cache their discovery in
TMPDIR, and discovery takes longer than most plays: runs get copies of files that a process wrote
in which nothing of a run was loaded (`forkserver/supervisor.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import resource
import secrets
import shlex
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Self

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import Resolver

from operator_runner.ansible.directories import (
    COMMANDS,
    MAX_READ_BYTES,
    Directory,
    command_file,
    open_directory,
    resource_dir,
    restore_mode,
)
from operator_runner.ansible.sandbox.isolation import Isolation, Sandbox
from operator_runner.ansible.sandbox.isolation_probe import ProbeResult, probe_isolation
from operator_runner.core import json_bounds
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import TYPE_TAG_PREFIX, Json, ObjectRef, PlainMap, RunRequest
from operator_runner.core.settings import DEFAULT_WORK_DIR, AnsibleSettings

_RUN, _SERVER, _DISCOVERY = ".run-", ".server-", ".discovery-"
_HOME = "home"
_CACHES = "k8srcp-*.json"
"""Cache files of kubernetes.core."""
_OWN_IN_HOME = {".ansible": frozenset({"tmp", "cp", "pc"})}
"""Directories of a home directory that each run has for itself, and entries that it makes there."""
_VERSION = re.compile(r"[a-z0-9.-]{1,253}/[a-z0-9]{1,63}|v[0-9a-z]{1,62}")
_MAX_VERSIONS = 256
"""API versions that runs may name, served or not; runs discover further ones themselves."""


def server_dir(base: Path) -> Path:
    """Return an unused path below the work dir for a fork server of this process."""
    return base / f"{_SERVER}{os.getpid()}-{secrets.token_hex(8)}"


@dataclass(slots=True)
class _RunFiles:
    """The directory of a run."""

    path: Path
    caches: dict[str, int]
    """Sizes of the caches in it, by name."""


class TempDirs:
    """The directories of runs, below the work dir `base`."""

    def __init__(self, base: Path, home: Path | None = None) -> None:
        """Touch nothing yet. Runs have a home directory of their own that links into `home`.

        Without `home`, theirs is that of the operator.
        """
        self.base = base
        self._home = home
        self._runs: dict[tuple[Path, str], _RunFiles] = {}
        """By the private data dir of the resource, and the ID of the run."""
        self._discovery: Path | None = None
        """The directory with the caches that runs share."""
        self._discovering: Path | None = None
        self._wanted: set[str] = set()
        """API versions that runs have discovered, such as apps/v1."""
        self._unserved: set[str] = set()
        """Those among them that the API server does not serve: a run can name anything."""
        self._shared: frozenset[str] = frozenset()
        """Those that were asked for when the shared caches were made."""

    def path(self, owner: Path, run_id: str) -> Path:
        """Return the directory of a run, its TMPDIR. Raises KeyError if it has none.

        `owner` is the private data dir of the resource. The path is short because those of Unix
        sockets are limited to 107 bytes; see
        `cold.playbook.shorten_socket_paths`.
        """
        return self._runs[owner, run_id].path

    def home(self, owner: Path, run_id: str) -> Path | None:
        """Return the home directory of a run, None if it is that of the operator."""
        return None if self._home is None else self.path(owner, run_id) / _HOME

    def clear(self) -> None:
        """Remove the directories of a previous process. Raises OSError."""
        ours = f"{_SERVER}{os.getpid()}-"
        with open_directory(self.base) as base:
            for name in base.directories():
                if name.startswith((_RUN, _DISCOVERY, _SERVER)) and not name.startswith(ours):
                    base.remove(name)

    def create(self, owner: Path, run_id: str) -> None:
        """Create the directory of a run, with the cached discovery. Raises OSError."""
        self.remove(owner, run_id)
        path = self.base / f"{_RUN}{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        files = self._runs[owner, run_id] = _RunFiles(path, {})
        if self._home is not None:
            _make_home(path / _HOME, self._home)
        for cache in self._shared_caches():
            with contextlib.suppress(FileNotFoundError):  # forgotten just now
                # Copies, because clients write to these files.
                shutil.copyfile(cache, path / cache.name)
                files.caches[cache.name] = (path / cache.name).stat().st_size

    def remove(self, owner: Path, run_id: str) -> None:
        """Remove the directory of a run, if it has one. Raises OSError.

        The name of a run may come from a directory that runs can write to.
        """
        files = self._runs.pop((owner, run_id), None)
        if files is None:
            return
        with open_directory(self.base) as base:
            with contextlib.suppress(FileNotFoundError), base.below(files.path.name) as own:
                self._want(_new_versions(own, files.caches))
            base.remove(files.path.name)

    def _want(self, versions: Iterable[str]) -> None:
        for version in versions:
            known = len(self._wanted) + len(self._unserved)
            if known < _MAX_VERSIONS and version not in self._unserved:
                self._wanted.add(version)

    def remove_all(self, owner: Path) -> None:
        """Remove the directories of all runs of a resource. Raises OSError."""
        for of, run_id in [*self._runs]:
            if of == owner:
                self.remove(owner, run_id)

    def begin_discovery(self, kubeconfig: str) -> Json | None:
        """Return what `forkserver/supervisor.py` is to do before a run; None: nothing.

        `kubeconfig` is the text of that of the run, whose own files it could have replaced.

        `end_discovery` has to be called when that has ended. Raises OSError.
        """
        wanted = frozenset(self._wanted)
        if self._discovering is not None or not wanted or wanted == self._shared:
            return None
        directory = self.base / f"{_DISCOVERY}{secrets.token_hex(8)}"
        directory.mkdir(mode=0o700)
        self._shared, self._discovering = wanted, directory
        versions = sorted(wanted)
        return {"directory": str(directory), "versions": versions, "kubeconfig": kubeconfig}

    def end_discovery(self, task: Json, *, done: bool) -> None:
        """Share what has been discovered with later runs, if it was done. Raises OSError."""
        directory = Path(task["directory"])
        if self._discovering != directory:  # outdated meanwhile
            self._remove(directory)
            return
        self._discovering = None
        if done:
            with open_directory(self.base) as base, base.below(directory.name) as own:
                served = set(_new_versions(own, {}))
            self._unserved |= self._wanted & self._shared - served
            self._wanted -= self._unserved
            self._shared &= served
            self._discovery, directory = directory, self._discovery or directory
        if directory != self._discovery:
            self._remove(directory)

    def forget_discovery(self) -> None:
        """Make the next runs discover again: the API server has changed what it serves."""
        old, self._discovery, self._discovering = self._discovery, None, None
        self._shared = frozenset()
        self._unserved.clear()
        if old is not None:
            self._remove(old)

    def _shared_caches(self) -> Iterable[Path]:
        return () if self._discovery is None else self._discovery.glob(_CACHES)

    def _remove(self, directory: Path) -> None:
        with open_directory(self.base) as base:
            base.remove(directory.name)


def _make_home(home: Path, real: Path) -> None:
    """Make a home directory whose entries are links to those of the real one."""
    home.mkdir(mode=0o700)
    for name, omitted in {"": frozenset(_OWN_IN_HOME), **_OWN_IN_HOME}.items():
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError),
            os.scandir(real / name) as entries,
        ):
            if name:
                (home / name).mkdir(mode=0o700)
            for entry in entries:
                if entry.name not in omitted:
                    (home / name / entry.name).symlink_to(entry.path)


def _new_versions(own: Directory, copied: dict[str, int]) -> Iterator[str]:
    """Yield the API versions in the caches of a run that it has not got from others."""
    for name in own.files():
        if not fnmatch(name, _CACHES):
            continue
        try:
            size = (own.path / name).lstat().st_size
            if size == copied.get(name) or size > MAX_READ_BYTES:
                continue
            found = [
                f"{group}/{version}" if group else version
                for groups in json_bounds.decode(own.read(name).encode())["resources"].values()
                for group, versions in groups.items()
                for version, resources in versions.items()
                if resources["resources"]
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # a run may have written anything
        yield from [each for each in found if _VERSION.fullmatch(each)][:_MAX_VERSIONS]


_UNSAFE, _VAULT = f"{TYPE_TAG_PREFIX}unsafe", f"{TYPE_TAG_PREFIX}vault"
_TAG = "tag:yaml.org,2002:"
_WIDTH = 2**30
_RESOLVER: Any = Resolver()
_Dumper: Any = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper


def serialize_extravars(variables: Json) -> str:
    """Return the content of env/extravars, which Ansible reads as `-e @FILE`.

    The format is the JSON of Ansible's own decoder, in which `{"__ansible_unsafe": TEXT}` is text
    that is never evaluated as a template. Users of resources must not control two cases of it:

    - It cannot encode a map with a key `__ansible_unsafe`, `__ansible_vault` or `__ansible_type`.
      Variables with such a map (`PlainMap`) are written as YAML, which can.
    - A file that it rejects is read as YAML, where `__ansible_unsafe` has no meaning, so that all
      text is evaluated. The leading tab is valid in JSON but not in YAML.
    """
    if not variables:
        return "{}"
    if _fits_json(variables):
        return "\t" + json.dumps(variables)
    return str(yaml.serialize(_node(variables), Dumper=_Dumper, width=_WIDTH))


def _fits_json(value: Any) -> bool:
    match value:
        case PlainMap():
            return False
        case dict():
            has_tags = any(key.startswith(TYPE_TAG_PREFIX) for key in value)
            fits = not has_tags or _is_tagged(value)
            return fits and all(map(_fits_json, value.values()))
        case list():
            return all(map(_fits_json, value))
        case _:
            return True


def _is_tagged(value: Json) -> bool:
    """Return whether this map encodes an unsafe or an encrypted text in Ansible's JSON."""
    return len(value) == 1 and any(isinstance(value.get(tag), str) for tag in (_UNSAFE, _VAULT))


def _node(value: Any) -> Node:
    match value:
        case dict() if not isinstance(value, PlainMap) and _is_tagged(value):
            ((tag, text),) = value.items()
            return ScalarNode("!vault", text, style='"') if tag == _VAULT else _data(text)
        case dict():
            # Keys are data in JSON as well: only values are evaluated.
            pairs = [(_data(key), _node(item)) for key, item in value.items()]
            return MappingNode(f"{_TAG}map", pairs, flow_style=False)
        case list():
            return SequenceNode(f"{_TAG}seq", [_node(item) for item in value], flow_style=False)
        case str():
            return ScalarNode(f"{_TAG}str", value, style='"')
        case None | bool():
            return ScalarNode(f"{_TAG}{'null' if value is None else 'bool'}", json.dumps(value))
        case _:
            kind = "int" if isinstance(value, int) else "float"
            return ScalarNode(f"{_TAG}{kind}", json.dumps(value))


def _data(text: str) -> Node:
    """Return a node of text that is never evaluated as a template.

    Ansible gives an `!unsafe` value the type that its text would have without quotes. Text that
    would be a number, a boolean or a time cannot be a template and needs no tag.
    """
    resolved_tag = _RESOLVER.resolve(ScalarNode, text, (True, False))
    return ScalarNode("!unsafe" if resolved_tag == f"{_TAG}str" else f"{_TAG}str", text, style='"')


_SHARED = "shared"
"""Directory below the work dir that all runs can read."""
_SHARED_FILE_MODE = 0o600
LOCK_FILE = ".lock"
"""In the work dir; an operator holds it as long as it runs."""
PLAYBOOK = "main.json"
"""The playbook of a role, in project/."""
_VARIABLES = "extravars"
_IMAGE_WORK_DIR = Path("/var/lib/operator-runner")
"""Outside of /tmp, whose files only mount namespaces can hide from runs (see sandbox/)."""
_OFTEN_EMPTY = ("fact_cache", "job_events")
"""Directories that ansible-runner makes among the artifacts of each run."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The private data dir of one resource, which is open as long as it is used."""

    own: Directory
    temp_dirs: TempDirs
    isolation: Isolation
    secrets: tuple[str, ...] = ()
    """Files and directories with credentials of the operator."""
    protected: tuple[str, ...] = ()
    """Directories that runs can only read."""

    def __enter__(self) -> Self:
        """Return it; its descriptor is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its descriptor."""
        self.own.__exit__()

    @property
    def path(self) -> Path:
        """The directory."""
        return self.own.path

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the current run, with its token."""
        return self.path / "env" / "kubeconfig"

    def temp_dir(self, run_id: str) -> Path:
        """Return the TMPDIR of a run. Raises KeyError if it has none."""
        return self.temp_dirs.path(self.path, run_id)

    def sandbox(self, run_id: str) -> Sandbox:
        """Return the sandbox of a run."""
        base = self.temp_dirs.base
        own = (str(self.path), str(self.temp_dir(run_id)))
        shared = base / _SHARED
        readable = (str(shared),) if shared.is_dir() else ()
        return Sandbox(
            self.isolation,
            str(base),
            own,
            readable,
            self.secrets,
            protected=self.protected,
            descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4,
        )

    def artifacts(self, run_id: str, *, create: bool = True) -> Directory:
        """Open the directory of a run's output and events. Raises OSError."""
        with self.own.below("artifacts", create=create) as artifacts:
            return artifacts.below(run_id, create=create)

    def prepare(self, request: RunRequest, ansible: AnsibleSettings) -> None:
        """Write all input files of a run. Raises OSError."""
        self.temp_dirs.create(self.path, request.run_id)
        for name in ("env", "project"):
            # ansible-runner and Ansible obey settings in them, which an earlier run may have left.
            self.own.remove(name)
        with (
            self.own.below("env", create=True) as env,
            self.own.below("project", create=True),
            self.own.below("artifacts", create=True),
        ):
            env.write(_VARIABLES, serialize_extravars(request.extra_vars))
            env.write("cmdline", command_line(request, ansible))
            env.write(self.kubeconfig.name, request.kubeconfig)
            _write_inventory(self.own, ansible.inventory, self.temp_dir(request.run_id))

    def write_variables(self, request: RunRequest) -> None:
        """Write the extra vars of a run. Raises OSError."""
        with self.own.below("env", create=True) as env:
            env.write(_VARIABLES, serialize_extravars(request.extra_vars))

    def write_playbook(self, plays: list[Json]) -> str:
        """Write a playbook for one run; return its name relative to project/."""
        with self.own.below("project", create=True) as project:
            project.write(PLAYBOOK, json.dumps(plays))
        return PLAYBOOK

    def clean_up(self, request: RunRequest, *, left_processes: bool) -> None:
        """Remove the credentials of a finished run and old artifacts, and link `latest` to it.

        If the run left background processes, its temporary directory is kept as long as its
        artifacts. A dry run has none: those of other runs stay as they are.
        """
        if request.dry_run or not left_processes:
            self.temp_dirs.remove(self.path, request.run_id)
        with (
            self.own.below("env", create=True) as env,
            self.own.below("artifacts", create=True) as artifacts,
        ):
            env.remove(self.kubeconfig.name)
            if request.dry_run:
                artifacts.remove(request.run_id)
                return
            with contextlib.suppress(FileNotFoundError), artifacts.below(request.run_id) as run:
                artifacts.link("latest", request.run_id)
                _drop_environment(run)
                for name in _OFTEN_EMPTY:
                    run.remove_empty(name)
            self._rotate(artifacts, request.max_artifacts)

    def output(self, run_id: str) -> str:
        """Return what the run printed, empty if it never started."""
        try:
            with self.artifacts(run_id, create=False) as artifacts:
                return artifacts.read("stdout")
        except FileNotFoundError:
            return ""

    def _rotate(self, artifacts: Directory, keep: int) -> None:
        for old in artifacts.directories()[keep:] if keep > 0 else ():
            self.temp_dirs.remove(self.path, old)
            artifacts.remove(old)


def _write_inventory(own: Directory, source: Path | None, temp_dir: Path) -> None:
    # As in ansible-operator: a copy of ANSIBLE_INVENTORY, a directory as the inventory, a file as
    # inventory/hosts; else only localhost. Its modules use the temporary directory of the run
    # instead of ~/.ansible/tmp, which all runs can read.
    own.remove("inventory")
    if source is not None:
        # Copied where no process of an earlier run can write.
        copy = temp_dir / "inventory"
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            copy.mkdir(mode=0o700)
            shutil.copyfile(source, copy / "hosts")
        own.move_here(copy)
        return
    words = ["localhost ansible_connection=local", _interpreter()]
    if not {"ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP"} & {*os.environ}:
        words.append(f"ansible_remote_tmp={shlex.quote(str(temp_dir))}")
    with own.below("inventory", create=True) as inventory:
        inventory.write("hosts", " ".join(words) + "\n")


class RunDirs:
    """All private data dirs, below one directory that only this process uses."""

    def __init__(
        self,
        base: Path,
        *,
        isolate: bool = True,
        credentials: Sequence[Path] = (),
        protected: Sequence[Path] = (),
        home: Path | None = None,
    ) -> None:
        """Lock `base`, which is created if missing. Raises ConfigError if it cannot be used.

        Unless `isolate` is False, runs are isolated from each other, from the operator and from
        its `credentials` (files and directories), as far as the host supports it. They can read
        the directories in `protected`, but not write to them, and have home directories of their
        own instead of `home`.
        """
        self.base = base = create_work_dir(base)
        self._lock = _lock(base)
        found = ProbeResult(Isolation(), None)
        if isolate:
            found = probe_isolation(base, credentials, protected)
        self.isolation, self.fault = found.isolation, found.fault
        self._secrets, self._protected = found.secrets, found.protected
        is_protected = home is not None and any(map(home.resolve().is_relative_to, found.protected))
        self.temp_dirs = TempDirs(base, home if is_protected else None)
        self.temp_dirs.clear()
        self.shared = base / _SHARED
        self._modes = {
            path: stat.S_IMODE(path.stat().st_mode) for path in map(Path, self._protected)
        }

    def forget_discovery(self) -> None:
        """Make the next runs discover again what the API server serves."""
        self.temp_dirs.forget_discovery()

    def path_of(self, ref: ObjectRef) -> Path:
        """Return the path of the dir of a resource, which may not exist."""
        return resource_dir(self.base, ref)

    def open(self, ref: ObjectRef, *, create: bool = True) -> RunDir:
        """Open the dir of a resource; see `open_directory`. Raises OSError."""
        self._restore_modes()
        own = open_directory(self.path_of(ref), create=create)
        return RunDir(own, self.temp_dirs, self.isolation, self._secrets, self._protected)

    def check(self) -> str | None:
        """Return why no run can start, None if runs can, as far as files are concerned."""
        probe = self.base / f".probe-{os.getpid()}"
        try:
            self._restore_modes()
            with contextlib.suppress(FileExistsError):
                probe.mkdir(mode=0o700)
            probe.rmdir()
        except OSError as error:
            return f"cannot write to --work-dir {self.base}: {error.strerror or error}"
        return None

    def _restore_modes(self) -> None:
        """Restore modes of directories that are used by all runs, which a run may have changed.

        Landlock has no rule for chmod. Raises OSError.
        """
        for path, mode in self._modes.items():
            restore_mode(path, mode)
        with contextlib.suppress(FileNotFoundError), open_directory(self.shared) as shared:
            for name in shared.files():
                restore_mode(self.shared / name, _SHARED_FILE_MODE)

    def remove(self, ref: ObjectRef) -> None:
        """Remove the dir of a deleted resource and parents that became empty."""
        path = self.path_of(ref)
        self.temp_dirs.remove_all(path)
        with contextlib.suppress(FileNotFoundError), open_directory(path.parent) as parent:
            parent.remove(path.name)
        self._remove_empty_parents(path)
        self.forget_command(ref)
        kept = {_SHARED, COMMANDS}
        others = (path for path in self.base.iterdir() if path.name not in kept)
        if not any(path.is_dir() and not path.name.startswith(".") for path in others):
            self.temp_dirs.forget_discovery()

    def forget_command(self, ref: ObjectRef) -> None:
        """Remove the command that repeats the last failed run of a resource."""
        command = command_file(self.base, ref)
        with contextlib.suppress(FileNotFoundError):
            command.unlink()
            self._remove_empty_parents(command)

    def _remove_empty_parents(self, path: Path) -> None:
        for parent in path.parents:
            if parent == self.base:
                break
            with contextlib.suppress(OSError):  # not empty, or does not exist
                parent.rmdir()


def resolve_work_dir(
    work_dir: Path, default: Path = DEFAULT_WORK_DIR, image_dir: Path = _IMAGE_WORK_DIR
) -> Path:
    """Return the directory to use for `work_dir`; if it is another one, make a link to it.

    A volume that is mounted at the default path is used. Anything else there may have been left by
    a run of an earlier process.
    """
    if work_dir != default or os.path.ismount(default):
        return work_dir
    if not os.access(image_dir, os.W_OK | os.X_OK):
        return work_dir
    with contextlib.suppress(OSError):  # the link is only for convenience
        default.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        default.symlink_to(image_dir)
    return image_dir


def create_work_dir(base: Path) -> Path:
    """Create the directory of all private data dirs, if missing; return its path without links.

    Raises ConfigError if it cannot be used.
    """
    # Runs have other working directories, so the path has to be absolute; and it must have no
    # links, so that any link found later was made by a run.
    base = base.resolve()
    try:
        # mode= of mkdir with parents=True applies to the last directory only.
        for path in (*reversed(base.parents), base):
            if not path.exists():
                path.mkdir(mode=0o700, exist_ok=True)
        is_trusted = _is_trusted(base.stat())
    except OSError as error:
        raise _unusable(base, error) from error
    if not is_trusted:
        raise ConfigError(
            f"--work-dir {base} belongs to another user; set it to a directory of this user"
        )
    return base


def _unusable(base: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"--work-dir {base}: cannot write to it ({error.strerror or error}); set it to a "
        "directory that the operator can create and write to, such as a mounted emptyDir"
    )


def _is_trusted(base: os.stat_result) -> bool:
    # Volumes of Pods are owned by root, like /tmp, which has the sticky bit.
    is_volume = base.st_uid == 0 and not base.st_mode & stat.S_ISVTX
    return is_volume or base.st_uid == os.geteuid()


def _lock(base: Path) -> int:
    # Two operators with the same work dir would overwrite each other's files.
    try:
        descriptor = os.open(base / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(base, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"--work-dir {base} is in use by another operator; set it to another directory"
        ) from None
    return descriptor


def _drop_environment(artifacts: Directory) -> None:
    # ansible-runner writes the environment of the run to this file, including secrets.
    try:
        content: Json = json.loads(artifacts.read("command"))
    except FileNotFoundError:
        return
    except ValueError:
        # Incomplete, because the run was killed while writing it.
        artifacts.remove("command")
        return
    content.pop("env", None)
    artifacts.write("command", json.dumps(content))


def command_line(request: RunRequest, ansible: AnsibleSettings) -> str:
    """Return the arguments of a run, quoted as for a shell."""
    words = [ansible.args]
    if request.dry_run:
        # Also without the patch of tasks: a dry run must not act on the host.
        words.append("--check")
    return " ".join(filter(None, words))


def _interpreter() -> str:
    environment = os.environ.get("VIRTUAL_ENV")
    python = f"{environment}/bin/python3" if environment else "{{ansible_playbook_python}}"
    return f"ansible_python_interpreter={python}"
