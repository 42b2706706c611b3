"""Images as archives: the same bytes every time, in the layout that containerd reads."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from operator_runner.devcluster.errors import ImageError
from operator_runner.devcluster.image_packing import Layer, merged, write_archive
from operator_runner.devcluster.image_spec import Extra, ImageSpec
from operator_runner.devcluster.node import names_in

_SPEC = ImageSpec(tag="example.local/web:1", user="101", env=(("A", "1"),), cmd=("web",))


def _package(*names: str, mtime: int = 0) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.mtime, info.size = mtime, len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    return buffer.getvalue()


def _archive(target: Path, *packages: bytes) -> Path:
    layer = Layer()
    for package in packages:
        layer.add_package(package)
    write_archive(_SPEC, layer, {"architecture": "amd64", "debian.web": "1.0"}, target)
    return target


def _layer(archive: Path) -> tarfile.TarFile:
    with tarfile.open(archive) as tar:
        [entry] = json.loads(_member(tar, "manifest.json"))
        return tarfile.open(fileobj=io.BytesIO(_member(tar, entry["Layers"][0])))


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    stream = tar.extractfile(name)
    assert stream is not None
    return stream.read()


def test_order_and_times_of_the_input_leave_no_trace(tmp_path: Path) -> None:
    """Two packagings of the same files are equal byte for byte."""
    one = _archive(tmp_path / "1.tar", _package("./usr/bin/a", "./etc/b", mtime=1))
    two = _archive(tmp_path / "2.tar", _package("./etc/b", "./usr/bin/a", mtime=2))
    assert one.read_bytes() == two.read_bytes()


def test_the_configuration_names_the_layer_by_its_digest(tmp_path: Path) -> None:
    """The archive is consistent: a container runtime checks just this."""
    with tarfile.open(_archive(tmp_path / "web.tar", _package("./etc/b"))) as tar:
        [entry] = json.loads(_member(tar, "manifest.json"))
        config = json.loads(_member(tar, entry["Config"]))
        digest = hashlib.sha256(_member(tar, entry["Layers"][0])).hexdigest()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
    assert config["architecture"] == "amd64"
    assert config["config"]["User"] == "101"
    assert config["config"]["Cmd"] == ["web"]
    assert config["config"]["Env"][1:] == ["A=1"]
    assert config["config"]["Env"][0].startswith("PATH=")
    assert config["config"]["Labels"] == {"debian.web": "1.0"}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("./bin/busybox", "usr/bin/busybox"),
        ("./lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("./lib", "lib"),
        ("./usr/lib/a", "usr/lib/a"),
        ("./library/a", "library/a"),
        ("./", ""),
    ],
)
def test_old_places_move_below_usr(path: str, place: str) -> None:
    """Files of packages in /bin or /lib are put into the targets of the links."""
    assert merged(path) == place


def test_directories_are_before_their_contents(tmp_path: Path) -> None:
    """Every folder of the layer has its own entry before its contents."""
    with _layer(_archive(tmp_path / "web.tar", _package("./a/b/c", "./lib/d"))) as layer:
        names = layer.getnames()
        assert layer.getmember("lib").issym()
    assert names.index("a") < names.index("a/b") < names.index("a/b/c")
    assert "usr/lib/d" in names


def test_a_hard_link_follows_its_target(tmp_path: Path) -> None:
    """A link that sorts before its target is after it in the archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("./bin/z"))
        link = tarfile.TarInfo("./bin/a")
        link.type, link.linkname = tarfile.LNKTYPE, "./bin/z"
        tar.addfile(link)
    with _layer(_archive(tmp_path / "web.tar", buffer.getvalue())) as layer:
        names = layer.getnames()
        assert layer.getmember("usr/bin/a").linkname == "usr/bin/z"
    assert names.index("usr/bin/z") < names.index("usr/bin/a")


def test_extras_replace_files_of_packages() -> None:
    """The image has the files of the specification, with their modes."""
    layer = Layer()
    layer.add_package(_package("./etc/motd"))
    layer.add(Extra("etc/motd", "file", 0o600, "hello"))
    layer.add(Extra("bin/sh", "symlink", 0o777, "busybox"))
    layer.add(Extra("tmp", "directory", 0o1777))
    with tarfile.open(fileobj=io.BytesIO(layer.to_tar())) as tar:
        assert _member(tar, "etc/motd") == b"hello"
        assert tar.getmember("etc/motd").mode == 0o600
        assert tar.getmember("usr/bin/sh").linkname == "busybox"
        assert tar.getmember("tmp").mode == 0o1777


def test_documentation_is_left_out(tmp_path: Path) -> None:
    """Manual pages and the like do not swell the image."""
    package = _package("./usr/share/doc/web/copyright", "./usr/share/web/index.html")
    with _layer(_archive(tmp_path / "web.tar", package)) as layer:
        files = {member.name for member in layer if member.isreg()}
    assert files == {"usr/share/web/index.html"}


def test_the_names_in_an_archive_are_found(tmp_path: Path) -> None:
    """`load` returns the images of an archive."""
    assert names_in(_archive(tmp_path / "web.tar")) == ("example.local/web:1",)


@pytest.mark.parametrize("content", [b"", b"no archive", _package("./manifest.json")])
def test_other_files_are_not_images(tmp_path: Path, content: bytes) -> None:
    """A file that holds no image is refused by its name."""
    path = tmp_path / "other.tar"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=r"other\.tar"):
        names_in(path)
