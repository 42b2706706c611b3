"""Read an operator project of a user, its CRDs and a sample resource; prepare a copy of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.api import Json, Kind
from bench.errors import BenchError

_WATCHES = "watches.yaml"
_CRD_FOLDERS = ("config/crd", "deploy", "crds")
_CRD, _CRD_VERSION = "CustomResourceDefinition", "apiextensions.k8s.io/v1"
_IMAGE_HOME = "/opt/ansible"
_LEFT_OUT = {"reconcileperiod"}
"""Both operators have the default period, so that nothing runs in a quiet time."""
_MANIFEST_FOLDERS = ("config/manager", "deploy")
_OF_THE_BENCH = {"HOME", "KUBECONFIG", "PATH", "PYTHONPATH", "TMPDIR", "WATCH_NAMESPACE"}
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "node_modules", "__pycache__")


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one field of the resource."""

    path: tuple[str, ...]
    value: Any

    @property
    def text(self) -> str:
        """`spec.replicas=3`."""
        return f"{'.'.join(self.path)}={self.value}"

    def patch(self, value: Any) -> Json:
        """Return a merge patch that sets the field; None deletes it."""
        for name in reversed(self.path):
            value = {name: value}
        return dict(value)

    def value_in(self, body: Json) -> Any:
        """Return the value of the field in an object; None if it has none."""
        value: Any = body
        for name in self.path:
            value = value.get(name) if isinstance(value, dict) else None
        return value


@dataclass(frozen=True, slots=True)
class UserProject:
    """A project with the watch of one kind, and what the API server needs for it."""

    folder: Path
    watch: Json
    resource: Json
    definitions: tuple[Json, ...]
    environment: Mapping[str, str]
    """Variables of the operator's container in the project's manifests."""
    objects: tuple[Json, ...] = ()
    """What has to exist before the resource, in its namespace."""

    @property
    def kind(self) -> Kind:
        """The kind of the resource."""
        return Kind(self.resource["apiVersion"], self.resource["kind"])

    def copy_to(self, target: Path) -> None:
        """Copy the project for one operator, with this watch only.

        Both operators get the same files: paths of the image are those of the copy, and a change of
        an annotation starts a run.
        """
        shutil.copytree(self.folder, target, symlinks=True, ignore=_NOT_COPIED)
        for file in target.rglob("*"):
            if file.suffix in {".yml", ".yaml", ".j2", ".cfg"} and file.is_file():
                _replace(file, _IMAGE_HOME, str(target))
        kept = {key: value for key, value in self.watch.items() if key.lower() not in _LEFT_OUT}
        watch = {**kept, "watchAnnotationsChanges": True}
        text = yaml.safe_dump([watch]).replace(_IMAGE_HOME, str(target))
        (target / _WATCHES).write_text(text)


def read_project(
    folder: Path,
    resource: Path,
    crds: Sequence[Path] = (),
    watches: Path | None = None,
    create: Sequence[Path] = (),
) -> UserProject:
    """Read a project. Raises BenchError with the file, the field and what to do."""
    if not folder.is_dir():
        raise BenchError(f"--project {folder}: not a directory; name that of {_WATCHES}")
    body = _read_resource(resource)
    file = watches or folder / _WATCHES
    watch = _watch_of(file, body)
    found = {crd["metadata"]["name"]: crd for crd in _definitions(folder, crds)}
    group, version = body["apiVersion"].split("/")
    if not any(_serves(crd, group, version, body["kind"]) for crd in found.values()):
        searched = ", ".join(map(str, crds or (folder / name for name in _CRD_FOLDERS)))
        raise BenchError(
            f"no CRD of {body['kind']} ({body['apiVersion']}) in {searched}; name it with --crd"
        )
    return UserProject(
        folder.resolve(),
        watch,
        body,
        tuple(found.values()),
        dict(_environment(folder)),
        tuple(each for file in create for each in _documents(file) if each),
    )


def parse_edit(text: str) -> Edit:
    """Parse `spec.replicas=3`; the value is YAML. Raises BenchError."""
    path, equals, value = text.partition("=")
    names = tuple(path.split("."))
    if not equals or len(names) == 1 or not all(names):
        raise BenchError(f"--edit {text}: write FIELD=VALUE, for example spec.replicas=3")
    return Edit(names, yaml.safe_load(value))


def _read_resource(file: Path) -> Json:
    documents = [each for each in _documents(file) if isinstance(each, dict)]
    if len(documents) != 1:
        raise BenchError(
            f"{file}: {len(documents)} resources; --resource needs a file with one custom resource"
        )
    (body,) = documents
    for names in (("apiVersion",), ("kind",), ("metadata", "name")):
        if not isinstance(Edit(names, None).value_in(body), str):
            raise BenchError(f"{file}: {'.'.join(names)}: missing; add it")
    if body["apiVersion"].count("/") != 1:
        raise BenchError(
            f"{file}: apiVersion: {body['apiVersion']} has no group; write GROUP/VERSION"
        )
    return body


def _watch_of(file: Path, body: Json) -> Json:
    group, version = body["apiVersion"].split("/")
    wanted = {"group": group, "version": version, "kind": body["kind"]}
    for watches in _documents(file):
        for watch in watches if isinstance(watches, list) else ():
            if isinstance(watch, dict) and {key: watch.get(key) for key in wanted} == wanted:
                return watch
    raise BenchError(
        f"{file}: no entry has kind {body['kind']} of {body['apiVersion']}, which --resource has; "
        "add one, or name another file with --watches-file"
    )


def _definitions(folder: Path, named: Sequence[Path]) -> Iterator[Json]:
    for path in named:
        if not path.exists():
            raise BenchError(f"--crd {path}: no such file or directory")
    for file, body in _objects(named or [folder / name for name in _CRD_FOLDERS], _CRD):
        yield _definition(file, body)


def _environment(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and value of the variables that Deployments of a project set."""
    for _, body in _objects([folder / name for name in _MANIFEST_FOLDERS], "Deployment"):
        for container in body["spec"]["template"]["spec"]["containers"]:
            for variable in container.get("env") or ():
                if "value" in variable and variable["name"] not in _OF_THE_BENCH:
                    yield variable["name"], str(variable["value"])


def _objects(paths: Sequence[Path], kind: str) -> Iterator[tuple[Path, Json]]:
    """Yield the objects of a kind in files, and in those below directories, with their file."""
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*.y*ml")):
            try:
                documents = _documents(file)
            except BenchError:
                if path == file:
                    raise
                continue  # a template, or something else that is not a manifest
            for body in documents:
                if isinstance(body, dict) and body.get("kind") == kind:
                    yield file, body


def _definition(file: Path, body: Json) -> Json:
    if body.get("apiVersion") != _CRD_VERSION:
        raise BenchError(
            f"{file}: apiVersion: {body.get('apiVersion')} is not served any more; "
            f"convert it to {_CRD_VERSION}, and name it with --crd"
        )
    # Its webhook is in a Pod of the operator.
    spec = {key: value for key, value in body["spec"].items() if key != "conversion"}
    return {**body, "spec": spec}


def _serves(crd: Json, group: str, version: str, kind: str) -> bool:
    spec = crd["spec"]
    served = {each["name"] for each in spec["versions"] if each.get("served")}
    return bool(spec["group"] == group and spec["names"]["kind"] == kind and version in served)


def _documents(file: Path) -> list[Any]:
    """Return the YAML documents of a file. Raises BenchError."""
    try:
        return list(yaml.safe_load_all(file.read_text()))
    except OSError as error:
        raise BenchError(f"{file}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BenchError(f"{file}: invalid YAML: {error}") from None


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_bytes()
    if old.encode() in text:
        file.write_bytes(text.replace(old.encode(), new.encode()))
