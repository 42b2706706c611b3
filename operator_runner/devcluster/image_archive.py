"""Write images with one layer as docker archives: the same input always gives the same bytes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operator_runner.devcluster import files
from operator_runner.devcluster.image_spec import Extra, ImageSpec

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


def write(spec: ImageSpec, layer: Layer, labels: dict[str, str], target: Path) -> None:
    """Write the image of `spec` with its one `layer` to `target`, whole or not at all."""
    tar = layer.to_tar()
    digest = hashlib.sha256(tar).hexdigest()
    config = _config(spec, digest, labels)
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [spec.tag], "Layers": [f"{digest}.tar"]}]
    members = {f"{digest}.tar": tar, name: config, "manifest.json": _json(manifest)}
    archive = _tar((_sized(path, len(data)), data) for path, data in members.items())
    files.write(target, archive, mode=0o644)


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
