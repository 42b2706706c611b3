"""Return the file-based catalog of a package. Pure.

The format is that of operator-registry: documents `olm.package`, `olm.channel`, `olm.bundle`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json
from operator_runner.tools.bundle.manifests import nested
from operator_runner.tools.bundle.stored_bundles import StoredBundle
from operator_runner.tools.yaml_io import base64_json, dump

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
