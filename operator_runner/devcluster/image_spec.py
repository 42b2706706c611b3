"""Specification of an image: the YAML files that `cluster pack` reads. Pure.

    tag: operator-runner.local/example:1
    packages: [busybox-static, "libssl3t64|libssl3"]   # a|b: the first that Debian has
    source: [{module: go.etcd.io/etcd/server/v3@v3.5.21, path: /usr/bin/etcd}]
    kubernetes: [{program: kube-scheduler, path: /usr/bin/kube-scheduler}]
    files: [{path: /etc/motd, content: hello, mode: "0644"}]
    directories: [{path: /tmp, mode: "1777"}]
    symlinks: [{path: /bin/sh, target: busybox}]
    user: "101"
    env: {LANG: C.UTF-8}
    entrypoint: [/bin/busybox]
    cmd: [sh]

Only `tag` must be there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from operator_runner.devcluster.errors import ImageError

_T = TypeVar("_T")
_KEYS = frozenset(
    (
        *("tag", "packages", "source", "kubernetes", "files", "directories", "symlinks"),
        *("user", "env", "entrypoint", "cmd"),
    )
)
_MODULE = re.compile(r"(?P<path>[^\s@]+)@(?P<version>v\d+\.\d+\.\d+\S*)")

_PROGRAM = re.compile(r"[a-z][a-z-]*")


@dataclass(frozen=True, slots=True)
class Extra:
    """A file, directory or symbolic link beside those of the packages."""

    path: str
    """Relative to the root of the image."""
    kind: str
    """`file`, `directory` or `symlink`."""
    mode: int
    content: str = ""
    """Text of a file, or target of a link."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program that is built from a Go module."""

    module: str
    version: str
    """With `v`, and complete: the same file always describes the same image."""
    package: str
    """Import path of the package `main`."""
    path: str
    """Relative to the root of the image."""
    tags: tuple[str, ...] = ()
    """Build tags."""


@dataclass(frozen=True, slots=True)
class KubernetesProgram:
    """A program of Kubernetes, as the local cluster runs it."""

    name: str
    path: str
    """Relative to the root of the image."""


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """An image with one layer."""

    tag: str
    packages: tuple[tuple[str, ...], ...] = ()
    """Each as its alternatives, best first."""
    programs: tuple[GoProgram, ...] = ()
    kubernetes: tuple[KubernetesProgram, ...] = ()
    extras: tuple[Extra, ...] = ()
    user: str = ""
    """User id or name, as in a Dockerfile; root if empty."""
    env: tuple[tuple[str, str], ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()


def parse(text: str, source: str) -> ImageSpec:
    """Return the image that the YAML `text` describes; `source` names it in errors."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ImageError(f"{source}: {error}") from error
    read = _SpecReader(source)
    top = read.mapping(document, "the document", _KEYS)
    if not top.get("tag") or ":" not in posixpath.basename(str(top["tag"])):
        raise ImageError(f"{source}: tag: a name with a version is needed, such as `name:1`")
    extras = [
        *read.each(top, "directories", frozenset(("path", "mode")), read.directory),
        *read.each(top, "files", frozenset(("path", "mode", "content")), read.file),
        *read.each(top, "symlinks", frozenset(("path", "target")), read.symlink),
    ]
    env = read.mapping(top.get("env") or {}, "env", None)
    packages = read.strings(top.get("packages"), "packages")
    return ImageSpec(
        tag=read.string(top["tag"], "tag"),
        packages=tuple(tuple(name.strip() for name in one.split("|")) for one in packages),
        programs=tuple(
            read.each(top, "source", frozenset(("module", "package", "path", "tags")), read.program)
        ),
        kubernetes=tuple(
            read.each(top, "kubernetes", frozenset(("program", "path")), read.kubernetes_program)
        ),
        extras=tuple(extras),
        user=read.string(top.get("user", ""), "user"),
        env=tuple((name, read.string(value, f"env.{name}")) for name, value in env.items()),
        entrypoint=read.strings(top.get("entrypoint"), "entrypoint"),
        cmd=read.strings(top.get("cmd"), "cmd"),
    )


@dataclass(frozen=True, slots=True)
class _SpecReader:
    """Checks values; its errors name the file and the field."""

    source: str

    def invalid(self, field: str, expected: str, value: object) -> ImageError:
        return ImageError(f"{self.source}: {field}: expected {expected}, found {value!r}")

    def string(self, value: object, field: str) -> str:
        if not isinstance(value, str):
            raise self.invalid(field, "a string (in quotes, if it looks like a number)", value)
        return value

    def strings(self, value: object, field: str) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.invalid(field, "a list of strings", value)
        return tuple(self.string(item, f"{field}[{index}]") for index, item in enumerate(value))

    def mapping(self, value: object, field: str, keys: frozenset[str] | None) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self.invalid(field, "a mapping", value)
        if keys is not None and (unknown := sorted(value.keys() - keys)):
            raise self.invalid(field, f"only the keys {', '.join(sorted(keys))}", unknown[0])
        return value

    def each(
        self,
        top: dict[str, Any],
        field: str,
        keys: frozenset[str],
        make: Callable[[dict[str, Any], str], _T],
    ) -> list[_T]:
        items = top.get(field) or []
        if not isinstance(items, list):
            raise self.invalid(field, "a list", items)
        places = [f"{field}[{index}]" for index in range(len(items))]
        return [
            make(self.mapping(item, place, keys), place)
            for item, place in zip(items, places, strict=True)
        ]

    def program(self, item: dict[str, Any], place: str) -> GoProgram:
        module = self.string(item.get("module"), f"{place}.module")
        named = _MODULE.fullmatch(module)
        if named is None:
            expected = "a module with its complete version, such as `example.com/module@v1.2.3`"
            raise self.invalid(f"{place}.module", expected, module)
        below = self.string(item.get("package", "."), f"{place}.package")
        package = posixpath.normpath(posixpath.join(named["path"], below))
        if package != named["path"] and not package.startswith(f"{named['path']}/"):
            raise self.invalid(f"{place}.package", "a folder of the module", below)
        tags = self.strings(item.get("tags"), f"{place}.tags")
        return GoProgram(named["path"], named["version"], package, self.path(item, place), tags)

    def kubernetes_program(self, item: dict[str, Any], place: str) -> KubernetesProgram:
        name = self.string(item.get("program"), f"{place}.program")
        if not _PROGRAM.fullmatch(name):
            raise self.invalid(f"{place}.program", "a name such as `kube-scheduler`", name)
        return KubernetesProgram(name, self.path(item, place))

    def directory(self, item: dict[str, Any], place: str) -> Extra:
        return Extra(self.path(item, place), "directory", self.mode(item, place, "0755"))

    def file(self, item: dict[str, Any], place: str) -> Extra:
        content = self.string(item.get("content"), f"{place}.content")
        return Extra(self.path(item, place), "file", self.mode(item, place, "0644"), content)

    def symlink(self, item: dict[str, Any], place: str) -> Extra:
        target = self.string(item.get("target"), f"{place}.target")
        return Extra(self.path(item, place), "symlink", 0o777, target)

    def path(self, item: dict[str, Any], place: str) -> str:
        path = self.string(item.get("path"), f"{place}.path")
        if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
            raise self.invalid(f"{place}.path", "an absolute path without `..`", path)
        return path.removeprefix("/")

    def mode(self, item: dict[str, Any], place: str, default: str) -> int:
        mode = self.string(item.get("mode", default), f"{place}.mode")
        try:
            return int(mode, 8)
        except ValueError:
            raise self.invalid(f"{place}.mode", 'octal digits such as "0755"', mode) from None
