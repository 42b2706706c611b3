"""Read bundles from their folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.tools.bundle.bundle import ANNOTATIONS, PREFIX
from operator_runner.tools.bundle.bundle_options import precedence
from operator_runner.tools.bundle.cluster_service_version import KIND
from operator_runner.tools.bundle.manifests import name_of, nested
from operator_runner.tools.yaml_io import load_objects, read_text


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """A bundle that was read from its folder."""

    folder: Path
    labels: Mapping[str, str]
    service_version: Json
    manifests: tuple[Json, ...]
    """All of them, the ClusterServiceVersion first."""
    dependencies: tuple[Json, ...]
    """`type` and `value` of each entry in metadata/dependencies.yaml."""

    @property
    def package(self) -> str:
        """Name of the package."""
        return self.labels[f"{PREFIX}bundle.package.v1"]

    @property
    def channels(self) -> tuple[str, ...]:
        """Channels that offer the bundle."""
        return tuple(self.labels[f"{PREFIX}bundle.channels.v1"].split(","))

    @property
    def default_channel(self) -> str:
        """Default channel of the package according to this bundle; empty if it names none."""
        return self.labels.get(f"{PREFIX}bundle.channel.default.v1", "")

    @property
    def name(self) -> str:
        """The name of its ClusterServiceVersion."""
        return name_of(self.service_version)

    @property
    def version(self) -> str:
        """Its semantic version."""
        return str(nested(self.service_version, "spec", "version"))


def read_bundles(folders: Iterable[Path]) -> tuple[StoredBundle, ...]:
    """Return bundles sorted by version. Raises ConfigError unless all have one package."""
    found = sorted(
        (read_bundle(folder) for folder in folders), key=lambda item: precedence(item.version)
    )
    packages = sorted({item.package for item in found})
    if len(packages) != 1:
        raise ConfigError(
            f"expected bundles of one package, found: {', '.join(packages) or 'none'}"
        )
    names = [item.name for item in found]
    for name in sorted(set(names)):
        if names.count(name) > 1:
            raise ConfigError(
                f"{name}: {names.count(name)} bundles have this name; pass one of them"
            )
    return tuple(found)


def read_bundle(folder: Path) -> StoredBundle:
    """Return the bundle of a folder. Raises ConfigError with the missing or invalid file."""
    if not (folder / ANNOTATIONS).is_file():
        raise ConfigError(
            f"{folder}: {ANNOTATIONS} is missing; name a folder that `operator-runner bundle` wrote"
        )
    labels = dict(nested(_one(folder / ANNOTATIONS), "annotations") or {})
    for label in ("package", "channels", "manifests"):
        if not labels.get(f"{PREFIX}bundle.{label}.v1"):
            raise ConfigError(
                f"{folder / ANNOTATIONS}: annotations: {PREFIX}bundle.{label}.v1 is missing"
            )
    files = sorted((folder / labels[f"{PREFIX}bundle.manifests.v1"]).glob("*.yaml"))
    manifests = [obj for file in files for obj in load_objects(read_text(file), str(file))]
    versions = [item for item in manifests if item.get("kind") == KIND]
    if len(versions) != 1:
        raise ConfigError(f"{folder}: expected one {KIND}, found {len(versions)}")
    rest = [item for item in manifests if item.get("kind") != KIND]
    file = folder / "metadata" / "dependencies.yaml"
    dependencies = _one(file).get("dependencies") or () if file.exists() else ()
    return StoredBundle(folder, labels, versions[0], (versions[0], *rest), tuple(dependencies))


def _one(file: Path) -> Json:
    found = load_objects(read_text(file), str(file))
    if len(found) != 1:
        raise ConfigError(f"{file}: expected one document, found {len(found)}")
    return found[0]
