"""Return the files of a bundle in the registry+v1 format, write and validate them.

OLM's validators and scorecard examine the bundle.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json, Watch
from operator_runner.tools.bundle.cluster_service_version import (
    BUILDER,
    KIND,
    LAYOUT,
    BundleOptions,
    cluster_service_version,
    package_of,
)
from operator_runner.tools.bundle.manifests import (
    Manifests,
    name_of,
    nested,
    permissions,
    without_cluster_metadata,
)
from operator_runner.tools.bundle.owned_crds import sample_resources
from operator_runner.tools.yaml_io import dump, load_objects, read_text

MANIFESTS, METADATA, SCORECARD = "manifests/", "metadata/", "tests/scorecard/"
ANNOTATIONS = "metadata/annotations.yaml"
PREFIX = "operators.operatorframework.io."

# Kinds that OLM installs from a bundle; see the supported resources of operator-registry.
_INSTALLED = {
    *("ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition"),
    *("NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "PriorityClass", "PrometheusRule"),
    *("Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "ServiceMonitor"),
    *("ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin", "ConsoleQuickStart"),
    *("ConsoleYAMLSample", "VerticalPodAutoscaler"),
}
# Kinds that the ClusterServiceVersion contains, or that the Subscription determines.
_ELSEWHERE = {KIND, "Deployment", "Namespace"}


@dataclass(frozen=True, slots=True)
class Bundle:
    """One version of an operator in OLM's format."""

    files: Mapping[str, str]
    """Text by path within the bundle."""
    labels: Mapping[str, str]
    """Labels of the bundle's image; metadata/annotations.yaml has the same."""


def dockerfile(labels: Mapping[str, str], folder: str) -> str:
    """Return the Dockerfile of a bundle's image; `folder` is the bundle's path in the context."""
    at = f"{folder.rstrip('/')}/" if folder else ""
    lines = ["# The image of the bundle; generated with it.", "FROM scratch", ""]
    lines += [f"LABEL {name}={value}" for name, value in labels.items()]
    lines.append("")
    copied = [MANIFESTS, METADATA]
    if f"{PREFIX}test.config.v1" in labels:
        copied.append(SCORECARD)
    lines += [f"COPY {at}{path} /{path}" for path in copied]
    return "\n".join(lines) + "\n"


def bundle(manifests: Manifests, watches: Sequence[Watch], options: BundleOptions) -> Bundle:
    """Return the bundle of a project. Raises ConfigError with the object and field at fault."""
    if options.image:
        manifests = manifests.with_image(options.image)
    package = package_of(manifests)
    granted = permissions(manifests)
    version = cluster_service_version(manifests, watches, options, granted)
    files = {f"{MANIFESTS}{package}.clusterserviceversion.yaml": dump(version)}
    for obj in _manifests(manifests, granted.replaced):
        files[MANIFESTS + _file_name(obj)] = dump(without_cluster_metadata(obj))
    tests = [obj for obj in manifests.of("Configuration") if _is_scorecard(obj)]
    if tests:
        files[f"{SCORECARD}config.yaml"] = dump(without_cluster_metadata(tests[0]))
    labels = _labels(package, options, tested=bool(tests))
    files[ANNOTATIONS] = dump({"annotations": labels})
    return Bundle(dict(sorted(files.items())), labels)


def _manifests(manifests: Manifests, replaced: frozenset[tuple[str, str]]) -> Iterator[Json]:
    """Yield the objects that OLM applies in addition to the ClusterServiceVersion."""
    examples = {id(sample) for sample in sample_resources(manifests)}
    for obj in manifests.objects:
        kind = str(obj.get("kind"))
        if (
            kind in _ELSEWHERE
            or id(obj) in examples
            or (kind, name_of(obj)) in replaced
            or _is_scorecard(obj)
        ):
            continue
        if kind not in _INSTALLED:
            raise manifests.error_at(
                obj,
                "kind",
                "OLM does not install this kind: remove it from the kustomization (OLM issues"
                " webhook certificates itself)",
            )
        yield obj


def _is_scorecard(obj: Json) -> bool:
    return str(obj.get("apiVersion", "")).startswith("scorecard.operatorframework.io/")


def _file_name(obj: Json) -> str:
    """Return the file name that operator-sdk uses for an object."""
    if obj["kind"] == "CustomResourceDefinition":
        return f"{nested(obj, 'spec', 'group')}_{nested(obj, 'spec', 'names', 'plural')}.yaml"
    api = str(obj["apiVersion"]).replace("/", "_")
    return f"{name_of(obj)}_{api}_{obj['kind'].lower()}.yaml"


def _labels(package: str, options: BundleOptions, *, tested: bool) -> dict[str, str]:
    labels = {
        "bundle.mediatype.v1": "registry+v1",
        "bundle.manifests.v1": MANIFESTS,
        "bundle.metadata.v1": METADATA,
        "bundle.package.v1": package,
        "bundle.channels.v1": ",".join(options.channels),
    }
    if options.default_channel:
        labels["bundle.channel.default.v1"] = options.default_channel
    labels |= {
        "metrics.builder": BUILDER,
        "metrics.mediatype.v1": "metrics+v1",
        "metrics.project_layout": LAYOUT,
    }
    if tested:
        labels |= {"test.mediatype.v1": "scorecard+v1", "test.config.v1": SCORECARD}
    return {PREFIX + name: value for name, value in labels.items()}


def write_bundle(folder: Path, files: Mapping[str, str]) -> None:
    """Write a bundle, and remove stale files of an earlier one.

    Other files are kept, such as metadata/dependencies.yaml. Raises ConfigError if the folder has
    manifests that are not a bundle.
    """
    present = sorted((folder / MANIFESTS).glob("*.yaml"))
    if present and not any(file.name.endswith(".clusterserviceversion.yaml") for file in present):
        raise ConfigError(
            f"--output: {folder / MANIFESTS} contains manifests without a ClusterServiceVersion;"
            " choose another folder"
        )
    stale = [*present, *(folder / SCORECARD).glob("*.yaml")]
    for path, text in files.items():
        write(folder / path, text)
    for old in stale:
        if str(old.relative_to(folder)) not in files:
            old.unlink()


def write(path: Path, text: str) -> None:
    """Write one file and create its parent folders. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


ERROR, WARNING = "Error", "Warning"
_SCORECARD = "scorecard-test"
# Where the program expects the bundle: the mount point in its image.
_MOUNTED = "bundle"


@dataclass(frozen=True, slots=True)
class ValidationMessage:
    """A result of a validator; an error excludes the bundle from catalogs."""

    test: str
    """Name of the validator or of the scorecard test."""
    level: str
    message: str

    def __str__(self) -> str:
        """Return one line for display."""
        return f"{self.level}: {self.test}: {self.message.removeprefix(f'{self.level}: ')}"


def validate(bundle: Path, programs: Path) -> Iterator[ValidationMessage]:
    """Yield the findings of OLM's validators, optional ones included.

    `programs` is the folder of the built validators. Raises ConfigError if `bundle` is not one.
    """
    for found in json.loads(_run([str(programs / "bundle-validate"), str(bundle)], bundle)):
        yield ValidationMessage(found["validator"], found["level"], found["message"])


def scorecard(bundle: Path, programs: Path) -> Iterator[ValidationMessage]:
    """Yield the findings of the scorecard tests in the bundle's own configuration.

    These tests read only the bundle, without a cluster. Suggestions are reported as warnings, and
    so is a bundle without a configuration. Raises ConfigError.
    """
    file = bundle / SCORECARD / "config.yaml"
    if not file.is_file():
        missing = f"no tests were run, because the bundle has no {SCORECARD}config.yaml"
        hint = (
            "to run them, add `../scorecard` to config/manifests/kustomization.yaml, as `init` does"
        )
        yield ValidationMessage("scorecard", WARNING, f"{missing}; {hint}")
        return
    (config,) = load_objects(read_text(file), str(file))
    with tempfile.TemporaryDirectory(prefix="scorecard-") as root:
        shutil.copy(programs / _SCORECARD, root)
        shutil.copytree(bundle, Path(root) / _MOUNTED)
        for name in _tests(config["stages"], file):
            answer = json.loads(_run([*_chroot(root), f"/{_SCORECARD}", name], bundle))
            for result in answer["results"]:
                yield from _findings(name, result)


def _tests(stages: list[dict[str, list[dict[str, list[str]]]]], file: Path) -> Iterator[str]:
    for stage in stages:
        for test in stage.get("tests") or ():
            match test.get("entrypoint"):
                case [program, str(name)] if program == _SCORECARD:
                    yield name
                case other:
                    raise ConfigError(
                        f"{file}: unsupported entrypoint {other}: expected [{_SCORECARD}, TEST]"
                    )


def _findings(name: str, result: dict[str, object]) -> Iterator[ValidationMessage]:
    for key, level in (("errors", ERROR), ("suggestions", WARNING)):
        messages = result.get(key) or []
        assert isinstance(messages, list)
        for message in messages:
            yield ValidationMessage(name, level, message)
    if result["state"] != "pass" and not result.get("errors"):
        yield ValidationMessage(name, ERROR, f"state {result['state']}")


def _chroot(root: str) -> list[str]:
    """Return a command prefix that runs a program with `root` as its root directory."""
    prefix = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    return [*prefix, "chroot", root]


def _run(command: list[str], bundle: Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"{command[0]}: cannot be run: {error.strerror}") from error
    if done.returncode:
        raise ConfigError(f"{bundle}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
