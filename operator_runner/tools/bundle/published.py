"""Bundles that are there already, read from their folders, as catalogs take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.tools.bundle.bundle import ANNOTATIONS, PREFIX
from operator_runner.tools.bundle.project import dig, name_of
from operator_runner.tools.bundle.service_version import KIND
from operator_runner.tools.bundle.wanted import precedence
from operator_runner.tools.yaml_io import parse


@dataclass(frozen=True, slots=True)
class Published:
    """A bundle as its files tell of it."""

    folder: Path
    labels: Mapping[str, str]
    service_version: Json
    manifests: tuple[Json, ...]
    """All of them, the ClusterServiceVersion first."""
    dependencies: tuple[Json, ...]
    """`type` and `value` of each entry in metadata/dependencies.yaml."""

    @property
    def package(self) -> str:
        """The package that it is a version of."""
        return self.labels[f"{PREFIX}bundle.package.v1"]

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that it is offered in."""
        return tuple(self.labels[f"{PREFIX}bundle.channels.v1"].split(","))

    @property
    def default_channel(self) -> str:
        """The channel that it wants to be the default one, if any."""
        return self.labels.get(f"{PREFIX}bundle.channel.default.v1", "")

    @property
    def name(self) -> str:
        """The name of its ClusterServiceVersion."""
        return name_of(self.service_version)

    @property
    def version(self) -> str:
        """Its semantic version."""
        return str(dig(self.service_version, "spec", "version"))


def read_all(folders: Iterable[Path]) -> tuple[Published, ...]:
    """Return bundles by version; ConfigError if they are not versions of one package."""
    found = sorted((read(folder) for folder in folders), key=lambda each: precedence(each.version))
    packages = sorted({each.package for each in found})
    if len(packages) != 1:
        raise ConfigError(
            f"bundles of one package are needed, found: {', '.join(packages) or 'none'}"
        )
    names = [each.name for each in found]
    for name in sorted(set(names)):
        if names.count(name) > 1:
            raise ConfigError(
                f"{name}: there are {names.count(name)} bundles of this name; give one"
            )
    return tuple(found)


def read(folder: Path) -> Published:
    """Return the bundle of a folder; ConfigError names the file that is missing or wrong."""
    labels = dict(dig(_one(folder / ANNOTATIONS), "annotations") or {})
    for label in ("package", "channels", "manifests"):
        if not labels.get(f"{PREFIX}bundle.{label}.v1"):
            raise ConfigError(
                f"{folder / ANNOTATIONS}: annotations: {PREFIX}bundle.{label}.v1 is missing"
            )
    files = sorted((folder / labels[f"{PREFIX}bundle.manifests.v1"]).glob("*.yaml"))
    manifests = [thing for file in files for thing in parse(_text(file), str(file))]
    versions = [each for each in manifests if each.get("kind") == KIND]
    if len(versions) != 1:
        raise ConfigError(f"{folder}: one {KIND} is needed, found {len(versions)}")
    rest = [each for each in manifests if each.get("kind") != KIND]
    needed = folder / "metadata" / "dependencies.yaml"
    dependencies = _one(needed).get("dependencies") or () if needed.exists() else ()
    return Published(folder, labels, versions[0], (versions[0], *rest), tuple(dependencies))


def _one(file: Path) -> Json:
    found = parse(_text(file), str(file))
    if len(found) != 1:
        raise ConfigError(f"{file}: one document is needed, found {len(found)}")
    return found[0]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: it cannot be read: {error}") from error
