"""Build images from Debian packages, Go modules and the programs of the local cluster.

Neither a registry nor root is needed. Images have one layer and are written as docker archives: the
same input always gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from operator_runner.devcluster import binaries, building, image_spec, locations, process
from operator_runner.devcluster.errors import ClusterError, ImageError
from operator_runner.devcluster.image_spec import Extra, GoProgram, ImageSpec
from operator_runner.devcluster.locations import cache_folder

_EPOCH = "1970-01-01T00:00:00Z"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Debian merged these into /usr. A package may still name the old place, and programs name
# their loader by it, so every image has the links and everything is put below /usr.
_MERGED = ("bin", "sbin", "lib", "lib64")
# Not needed at run time, and a large part of the size of packages.
_LEFT_OUT = ("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/lintian/")
_KINDS = {"directory": tarfile.DIRTYPE, "file": tarfile.REGTYPE, "symlink": tarfile.SYMTYPE}


@dataclass(frozen=True, slots=True)
class _LayerFile:
    info: tarfile.TarInfo
    content: bytes


class Layer:
    """The files of an image by path; a file that is added later replaces an earlier one."""

    def __init__(self) -> None:
        """Begin with the links of a merged /usr."""
        self._entries: dict[str, _LayerFile] = {}
        for name in _MERGED:
            self._put(_info(f"usr/{name}", tarfile.DIRTYPE, 0o755), b"")
            link = _info(name, tarfile.SYMTYPE, 0o777)
            link.linkname = f"usr/{name}"
            self._put(link, b"")

    def add_package(self, archive: bytes) -> None:
        """Add the files of a Debian package, given as an uncompressed tar."""
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                name = merged(member.name)
                if not name or name in _MERGED or name.startswith(_LEFT_OUT):
                    continue
                stream = tar.extractfile(member) if member.isreg() else None
                info = _info(name, member.type, member.mode)
                info.uid, info.gid = member.uid, member.gid
                # A hard link names a member of the archive, a symbolic link any path.
                info.linkname = merged(member.linkname) if member.islnk() else member.linkname
                self._put(info, b"" if stream is None else stream.read())

    def add_program(self, path: str, content: bytes) -> None:
        """Add a file that everybody may execute."""
        self._put(_info(merged(path), tarfile.REGTYPE, 0o755), content)

    def add(self, extra: Extra) -> None:
        """Add one file, directory or symbolic link that belongs to root."""
        info = _info(merged(extra.path), _KINDS[extra.kind], extra.mode)
        if extra.kind == "symlink":
            info.linkname = extra.content
        self._put(info, extra.content.encode() if extra.kind == "file" else b"")

    def to_tar(self) -> bytes:
        """Return the layer as a tar: parents first, sorted by path, all times zero."""
        # A hard link needs its target before it.
        order = sorted(self._entries.items(), key=lambda item: (item[1].info.islnk(), item[0]))
        return _tar((entry.info, entry.content) for _, entry in order)

    def _put(self, info: tarfile.TarInfo, content: bytes) -> None:
        info.size = len(content)
        self._entries[info.name] = _LayerFile(info, content)
        parent = info.name.rpartition("/")[0]
        if parent and parent not in self._entries:
            self._put(_info(parent, tarfile.DIRTYPE, 0o755), b"")


def merged(path: str) -> str:
    """Return the path in the image, relative to its root, of `path` in a package."""
    clean = path.removeprefix(".").strip("/")
    top = clean.partition("/")
    return f"usr/{clean}" if top[0] in _MERGED and top[1] else clean


def write_archive(spec: ImageSpec, layer: Layer, labels: dict[str, str], target: Path) -> None:
    """Write the image of `spec` with its one `layer` to `target`, whole or not at all."""
    tar = layer.to_tar()
    digest = hashlib.sha256(tar).hexdigest()
    config = _config(spec, digest, labels)
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [spec.tag], "Layers": [f"{digest}.tar"]}]
    members = {f"{digest}.tar": tar, name: config, "manifest.json": _json(manifest)}
    archive = _tar((_sized(path, len(data)), data) for path, data in members.items())
    locations.write_file(target, archive, mode=0o644)


def architecture(debian: str) -> str:
    """Return the name that images use for a Debian architecture."""
    return {"armhf": "arm", "i386": "386", "ppc64el": "ppc64le"}.get(debian, debian)


def _config(spec: ImageSpec, layer_digest: str, labels: dict[str, str]) -> bytes:
    env = [_PATH, *(f"{name}={value}" for name, value in spec.env if name != "PATH")]
    env[0] = next((f"PATH={value}" for name, value in spec.env if name == "PATH"), _PATH)
    runtime = {
        "User": spec.user,
        "Env": env,
        "Entrypoint": list(spec.entrypoint) or None,
        "Cmd": list(spec.cmd) or None,
        "Labels": {key: value for key, value in sorted(labels.items()) if key != "architecture"},
    }
    return _json(
        {
            "architecture": labels["architecture"],
            "os": "linux",
            "created": _EPOCH,
            "config": {key: value for key, value in runtime.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            "history": [{"created": _EPOCH}],
        }
    )


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _info(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, mode
    return info


def _sized(name: str, size: int) -> tarfile.TarInfo:
    info = _info(name, tarfile.REGTYPE, 0o644)
    info.size = size
    return info


def _tar(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


# The first Go that refuses a module which needs a newer one.
_OLDEST_GO = (1, 21)
_ERROR_LINES = 12


def build_go_program(program: GoProgram, folder: Path, console: Console) -> bytes:
    """Return the static program that `program` describes, built in the empty `folder`.

    Dependencies have the versions that the module requires. They are downloaded and verified as
    the user's settings of Go say. Raises ClusterError.
    """
    go = building.find_go(_OLDEST_GO, program.package)
    console.print(f"Building {program.package} {program.version}")
    target = folder / "program"
    options = ("-trimpath", "-ldflags=-s -w", f"-tags={','.join(program.tags)}", f"-o={target}")
    # Not by `go install`: it refuses modules with `replace` directives.
    for arguments in (
        ("mod", "init", "image"),
        ("get", f"{program.package}@{program.version}"),
        ("build", *options, program.package),
    ):
        _run_go(program, [go, *arguments], folder)
    return target.read_bytes()


def _run_go(program: GoProgram, command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=building.go_environment({"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "go: downloading " not in line]
        ending = "".join(f"\n  {line[:300]}" for line in lines[-_ERROR_LINES:])
        raise ImageError(
            f"{program.package} of {program.module}@{program.version} could not be built:{ending}",
            hint="Check module, version and package in `source`; `go list -m -versions "
            f"{program.module}` lists the versions. Modules that only build with C do not work.",
        )


# Part of the cache key: raise it when the same specification gives another archive.
_FORMAT = 1
PAUSE_SPEC = Path(__file__).with_name("pause-image.yaml")


def pack(source: Path, target: Path, environment: Mapping[str, str] = os.environ) -> ImageSpec:
    """Write the image that the file `source` describes to `target`; return what it describes.

    An unchanged specification is served from the cache. Delete the cache folder's `images` to
    get newer packages of Debian.
    """
    spec, cached = packed(source, environment)
    target.parent.mkdir(parents=True, exist_ok=True)
    locations.write_file(target, cached.read_bytes(), mode=0o644)
    return spec


def packed(source: Path, environment: Mapping[str, str]) -> tuple[ImageSpec, Path]:
    """Return the image that `source` describes, and its archive in the cache."""
    try:
        text = source.read_text()
    except OSError as error:
        raise ImageError(f"{source}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ImageError(f"{source}: cannot be read: {error}") from error
    spec = image_spec.parse(text, str(source))
    folder = locations.private_folder(cache_folder(environment) / "images")
    debian = _command("dpkg", "--print-architecture").strip()
    kubernetes = _kubernetes_programs(spec, environment)
    digest = hashlib.sha256(f"{_FORMAT}\n{debian}\n{text}".encode())
    for content in kubernetes.values():
        digest.update(content)
    key = digest.hexdigest()[:16]
    cached = folder / f"{key}.tar"
    # Of several commands that need the same image, one makes it.
    with locations.locked(folder / f"{key}.lock"):
        if not cached.exists():
            _build(spec, debian, kubernetes, cached)
    return spec, cached


def _kubernetes_programs(spec: ImageSpec, environment: Mapping[str, str]) -> dict[str, bytes]:
    """Return the programs of Kubernetes in an image, by their paths in it."""
    if not spec.kubernetes:
        return {}
    folder = binaries.find(
        [program.name for program in spec.kubernetes],
        environment,
        Console(stderr=True, highlight=False),
    )
    try:
        return {each.path: (folder / each.name).read_bytes() for each in spec.kubernetes}
    except FileNotFoundError as error:
        known = ", ".join(sorted(path.name for path in folder.iterdir()))
        raise ImageError(
            f"{spec.tag}: the local cluster has no program {Path(error.filename).name}",
            hint=f"`kubernetes` may have: {known}.",
        ) from error


def _build(spec: ImageSpec, debian: str, kubernetes: Mapping[str, bytes], target: Path) -> None:
    layer = Layer()
    labels = {"architecture": architecture(debian)}
    with tempfile.TemporaryDirectory() as folder:
        for archive in _download(spec, Path(folder)):
            fields = ("Package", "Version")
            shown = _command("dpkg-deb", "--field", str(archive), *fields)
            values = [line.partition(": ")[2] for line in shown.splitlines()]
            labels[f"debian.{values[0]}"] = values[1]
            layer.add_package(_tar_of(archive))
    for program in spec.programs:
        with tempfile.TemporaryDirectory() as folder:
            console = Console(stderr=True, highlight=False)
            layer.add_program(program.path, build_go_program(program, Path(folder), console))
    for path, content in kubernetes.items():
        layer.add_program(path, content)
    for extra in spec.extras:
        layer.add(extra)
    write_archive(spec, layer, labels, target)


def _download(spec: ImageSpec, folder: Path) -> list[Path]:
    """Download the packages of `spec` into `folder`; return them in the order of the list."""
    if not spec.packages:
        return []
    wanted = sorted({name for alternatives in spec.packages for name in alternatives})
    known = available(_command("apt-cache", "policy", *wanted))
    names = [_first_known(alternatives, known) for alternatives in spec.packages]
    # Root may download too, because no other user can write to the folder.
    _command("apt-get", "-o", "APT::Sandbox::User=root", "download", *names, folder=folder)
    # Files are called NAME_VERSION_ARCHITECTURE.deb.
    return [next(folder.glob(f"{name}_*.deb")) for name in names]


def available(policy: str) -> frozenset[str]:
    """Return the packages that can be downloaded, from what `apt-cache policy` prints."""
    found, name = set(), ""
    for line in policy.splitlines():
        if not line.startswith(" "):
            name = line.rstrip(":")
        elif line.startswith("  Candidate: ") and not line.endswith("(none)"):
            found.add(name)
    return frozenset(found)


def _first_known(alternatives: tuple[str, ...], known: frozenset[str]) -> str:
    for name in alternatives:
        if name in known:
            return name
    raise ImageError(
        f"Debian has no package {' or '.join(alternatives)}",
        hint="Run `apt-get update` (as root); the list of packages may be missing or old.",
    )


def _command(*command: str, folder: Path | None = None) -> str:
    try:
        return process.run_program(*command, folder=folder)
    except ClusterError as error:
        raise ImageError(
            f"packing failed: {error.problem}",
            hint="Images are packed from Debian packages: this needs Debian or Ubuntu, "
            "`apt-get update`, and a reachable package source.",
        ) from error


def _tar_of(archive: Path) -> bytes:
    done = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", str(archive)], capture_output=True, check=False
    )
    if done.returncode:
        raise ImageError(f"{archive.name} cannot be unpacked: {done.stderr.decode()}")
    return done.stdout
