"""Return the file-based catalog of a package from its stored bundles, and write for OperatorHub.

The format is that of operator-registry: documents `olm.package`, `olm.channel`, `olm.bundle`.
OperatorHub has a folder of each operator in the community repositories.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json
from operator_runner.tools.bundle.bundle import ANNOTATIONS, PREFIX, dockerfile, write
from operator_runner.tools.bundle.cluster_service_version import KIND, precedence
from operator_runner.tools.bundle.manifests import name_of, nested
from operator_runner.tools.yaml_io import base64_json, dump, load_objects, read_text


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


_METADATA = (
    "displayName", "description", "installModes", "keywords", "links", "maintainers", "maturity",
    "minKubeVersion", "nativeAPIs", "provider",
)  # fmt: skip
_REQUIRED = {"olm.package": "olm.package.required", "olm.gvk": "olm.gvk.required"}
# Field names of dependencies.yaml that differ in catalogs.
_VERSION_RANGE = {"version": "versionRange"}

DOCKERFILE = """\
# The image of the catalog; OPM_IMAGE is the image of operator-registry's opm.
ARG OPM_IMAGE=quay.io/operator-framework/opm:latest
FROM ${OPM_IMAGE}

ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]
COPY %(folder)s /configs
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]

LABEL operators.operatorframework.io.index.configs.v1=/configs
"""


def catalog(bundles: Sequence[StoredBundle], *, default_channel: str = "", image: str = "") -> str:
    """Return the catalog of a package's bundles, oldest first.

    `image` is the name of the bundles' images, with `{version}` for the version. Without it the
    catalog contains all manifests, and no bundle image is pulled. Raises ConfigError if the default
    channel is ambiguous.
    """
    newest = bundles[-1]
    documents: list[Json] = [_package(newest, _default(bundles, default_channel))]
    documents += _channels(bundles)
    documents += [_bundle(item, image.replace("{version}", item.version)) for item in bundles]
    return dump(*documents)


def _default(bundles: Sequence[StoredBundle], given: str) -> str:
    channels = sorted({channel for item in bundles for channel in item.channels})
    newest = next((item.default_channel for item in reversed(bundles) if item.default_channel), "")
    chosen = given or newest or (channels[0] if len(channels) == 1 else "")
    if chosen not in channels:
        raise ConfigError(
            f"--default-channel: invalid value {chosen!r}: expected one of {', '.join(channels)}"
        )
    return chosen


def _package(newest: StoredBundle, default_channel: str) -> Json:
    made: Json = {
        "schema": "olm.package",
        "name": newest.package,
        "defaultChannel": default_channel,
        "description": nested(newest.service_version, "spec", "description") or "",
    }
    for icon in nested(newest.service_version, "spec", "icon") or ():
        made["icon"] = {"base64data": icon["base64data"], "mediatype": icon["mediatype"]}
    return made


def _channels(bundles: Sequence[StoredBundle]) -> Iterator[Json]:
    for name in sorted({channel for item in bundles for channel in item.channels}):
        entries = [_entry(item) for item in bundles if name in item.channels]
        yield {
            "schema": "olm.channel",
            "package": bundles[0].package,
            "name": name,
            "entries": entries,
        }


def _entry(published: StoredBundle) -> Json:
    """Return the upgrade edges of a version: name, replaces, skips, skipRange."""
    spec = published.service_version["spec"]
    made = {"name": published.name}
    for field in ("replaces", "skips"):
        if spec.get(field):
            made[field] = spec[field]
    annotations = nested(published.service_version, "metadata", "annotations") or {}
    if annotations.get("olm.skipRange"):
        made["skipRange"] = annotations["olm.skipRange"]
    return made


def _bundle(published: StoredBundle, image: str) -> Json:
    related = list(nested(published.service_version, "spec", "relatedImages") or ())
    if image:
        related.append({"name": "", "image": image})
    return {
        "schema": "olm.bundle",
        "package": published.package,
        "name": published.name,
        "image": image,
        "properties": [*_kinds(published), _identity(published), *_content(published, image)],
        "relatedImages": related,
    }


def _kinds(published: StoredBundle) -> Iterator[Json]:
    definitions = nested(published.service_version, "spec", "customresourcedefinitions") or {}
    for relation, name in (("owned", "olm.gvk"), ("required", "olm.gvk.required")):
        for entry in definitions.get(relation) or ():
            gvk = GVK(entry["name"].partition(".")[2], entry["version"], entry["kind"])
            yield _property(name, {"group": gvk.group, "kind": gvk.kind, "version": gvk.version})
    for item in published.dependencies:
        value = {_VERSION_RANGE.get(key, key): val for key, val in item.get("value", {}).items()}
        kind = str(item.get("type"))
        yield _property(_REQUIRED.get(kind, kind), value)


def _identity(published: StoredBundle) -> Json:
    value = {"packageName": published.package, "version": published.version}
    return _property("olm.package", value)


def _content(published: StoredBundle, image: str) -> Iterator[Json]:
    if not image:
        for obj in published.manifests:
            yield _property("olm.bundle.object", {"data": base64_json(obj)})
        return
    version = published.service_version
    metadata = {name: version["spec"][name] for name in _METADATA if name in version["spec"]}
    metadata["annotations"] = nested(version, "metadata", "annotations") or {}
    metadata["crdDescriptions"] = version["spec"].get("customresourcedefinitions") or {}
    yield _property("olm.csv.metadata", metadata)


def _property(name: str, value: Json) -> Json:
    return {"type": name, "value": value}


def ci_config(reviewers: Sequence[str]) -> str:
    """Return the text of `ci.yaml`: mode of the upgrade graph, and reviewers."""
    config: dict[str, object] = {"updateGraph": "replaces-mode"}
    if reviewers:
        config["reviewers"] = list(reviewers)
    return dump(config)


def write_operatorhub(
    bundles: Sequence[StoredBundle], target: Path, reviewers: Sequence[str]
) -> Path:
    """Write `operators/PACKAGE` below `target`, with a folder for each version; return it.

    Existing versions are replaced. Raises ConfigError with the path that cannot be written.
    """
    home = target / "operators" / bundles[0].package
    write(home / "ci.yaml", ci_config(reviewers))
    for item in bundles:
        folder = home / item.version
        try:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(item.folder, folder)
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be written: {error}") from error
        write(folder / "Dockerfile", dockerfile(item.labels, ""))
    return home
