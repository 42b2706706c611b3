"""Image specifications: parsed values, and errors with the field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from operator_runner.devcluster.errors import ImageError
from operator_runner.devcluster.image_packing import PAUSE_SPEC
from operator_runner.devcluster.image_spec import (
    Extra,
    GoProgram,
    ImageSpec,
    KubernetesProgram,
    parse,
)

_REPOSITORY = Path(__file__).parents[3]


def test_every_field_is_read() -> None:
    """A specification with all fields becomes one immutable value."""
    text = """
        tag: example.local/web:1
        packages: [one, two|three]
        source:
          - {module: example.com/one/v3@v3.5.1, path: /usr/bin/one, tags: [netgo]}
          - {module: example.com/two@v1.2.3-rc.1, package: ./cmd/tool, path: /bin/tool}
        kubernetes: [{program: kube-scheduler, path: /usr/bin/kube-scheduler}]
        files: [{path: /etc/motd, content: hello, mode: "0600"}]
        directories: [{path: /tmp, mode: "1777"}]
        symlinks: [{path: /bin/sh, target: busybox}]
        user: "101"
        env: {LANG: C.UTF-8}
        entrypoint: [/bin/busybox]
        cmd: [sh, -c]
    """
    assert parse(text, "spec.yaml") == ImageSpec(
        tag="example.local/web:1",
        packages=(("one",), ("two", "three")),
        programs=(
            GoProgram(
                "example.com/one/v3", "v3.5.1", "example.com/one/v3", "usr/bin/one", ("netgo",)
            ),
            GoProgram("example.com/two", "v1.2.3-rc.1", "example.com/two/cmd/tool", "bin/tool"),
        ),
        kubernetes=(KubernetesProgram("kube-scheduler", "usr/bin/kube-scheduler"),),
        extras=(
            Extra("tmp", "directory", 0o1777),
            Extra("etc/motd", "file", 0o600, "hello"),
            Extra("bin/sh", "symlink", 0o777, "busybox"),
        ),
        user="101",
        env=(("LANG", "C.UTF-8"),),
        entrypoint=("/bin/busybox",),
        cmd=("sh", "-c"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "the document: expected a mapping"),
        ("{", "spec.yaml: while parsing"),
        ("cmd: [x]", "tag: a name with a version is needed"),
        ("tag: name", "tag: a name with a version is needed"),
        ("tag: host:80/name", "tag: a name with a version is needed"),
        ("tag: a:1\nimage: b", "expected only the keys"),
        ("tag: a:1\npackages: nginx", "packages: expected a list of strings, found 'nginx'"),
        ("tag: a:1\npackages: [1]", "packages[0]: expected a string"),
        ("tag: a:1\nuser: 101", "user: expected a string"),
        ("tag: a:1\nenv: {A: 1}", "env.A: expected a string"),
        ("tag: a:1\nfiles: {}\ndirectories: {a: 1}", "directories: expected a list"),
        ("tag: a:1\nsource: [{path: /a}]", "source[0].module: expected a string"),
        ("tag: a:1\nsource: [{module: b}]", "source[0].module: expected a module with its comp"),
        ("tag: a:1\nsource: [{module: b@latest}]", "source[0].module: expected a module with its"),
        ("tag: a:1\nsource: [{module: b@v1.2}]", "source[0].module: expected a module with its"),
        ("tag: a:1\nsource: [{module: b@v1.2.3}]", "source[0].path: expected a string"),
        (
            "tag: a:1\nsource: [{module: b/c@v1.2.3, package: ../d, path: /a}]",
            "source[0].package: expected a folder of the module, found '../d'",
        ),
        ("tag: a:1\nkubernetes: [{path: /a}]", "kubernetes[0].program: expected a string"),
        ("tag: a:1\nkubernetes: [{program: kubelet}]", "kubernetes[0].path: expected a string"),
        (
            "tag: a:1\nkubernetes: [{program: ../etcd, path: /a}]",
            "kubernetes[0].program: expected a name such as `kube-scheduler`, found '../etcd'",
        ),
        ("tag: a:1\nfiles: [x]", "files[0]: expected a mapping, found 'x'"),
        ("tag: a:1\nfiles: [{path: /a}]", "files[0].content: expected a string"),
        ("tag: a:1\nfiles: [{path: a, content: b}]", "files[0].path: expected an absolute path"),
        ("tag: a:1\ndirectories: [{path: /a/../b}]", "directories[0].path: expected an absolute"),
        ("tag: a:1\ndirectories: [{path: /a, mode: 755}]", "directories[0].mode: expected a str"),
        ('tag: a:1\ndirectories: [{path: /a, mode: "9"}]', "directories[0].mode: expected octal"),
        ("tag: a:1\nsymlinks: [{path: /a}]", "symlinks[0].target: expected a string"),
    ],
)
def test_an_error_names_file_and_field(text: str, message: str) -> None:
    """The message alone leads to the place in the file."""
    with pytest.raises(ImageError, match=re.escape(message)) as caught:
        parse(text, "spec.yaml")
    assert str(caught.value).startswith("spec.yaml: ")


@pytest.mark.parametrize("path", [PAUSE_SPEC, _REPOSITORY / "demo" / "nginx-image.yaml"])
def test_the_specifications_of_this_project_are_right(path: Path) -> None:
    """Those that are shipped can be read, and have a name that no registry serves."""
    assert parse(path.read_text(), str(path)).tag.startswith("operator-runner.local/")
