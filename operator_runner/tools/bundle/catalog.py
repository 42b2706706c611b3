"""A file-based catalog of a package: its channels, and its bundles with all their manifests. Pure.

The format is that of operator-registry: documents `olm.package`, `olm.channel`, `olm.bundle`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json
from operator_runner.tools.bundle.project import dig
from operator_runner.tools.bundle.published import Published
from operator_runner.tools.yaml_io import dump, encoded

_METADATA = (
    "displayName", "description", "installModes", "keywords", "links", "maintainers", "maturity",
    "minKubeVersion", "nativeAPIs", "provider",
)  # fmt: skip
_REQUIRED = {"olm.package": "olm.package.required", "olm.gvk": "olm.gvk.required"}
# How dependencies.yaml calls it, and how catalogs do.
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


def catalog(bundles: Sequence[Published], *, default_channel: str = "", image: str = "") -> str:
    """Return the catalog of a package's bundles, oldest first.

    `image` is the name of the bundles' images, with `{version}` for the version. Without it the
    catalog carries all manifests itself, and nothing has to be pulled to install from it. Raises
    ConfigError where the bundles do not say which channel is the default one.
    """
    newest = bundles[-1]
    documents: list[Json] = [_package(newest, _default(bundles, default_channel))]
    documents += _channels(bundles)
    documents += [_bundle(each, image.replace("{version}", each.version)) for each in bundles]
    return dump(*documents)


def _default(bundles: Sequence[Published], given: str) -> str:
    channels = sorted({channel for each in bundles for channel in each.channels})
    wish = next((each.default_channel for each in reversed(bundles) if each.default_channel), "")
    chosen = given or wish or (channels[0] if len(channels) == 1 else "")
    if chosen not in channels:
        raise ConfigError(
            f"--default-channel: {chosen or 'it'} must be one of {', '.join(channels)}"
        )
    return chosen


def _package(newest: Published, default_channel: str) -> Json:
    made: Json = {
        "schema": "olm.package",
        "name": newest.package,
        "defaultChannel": default_channel,
        "description": dig(newest.service_version, "spec", "description") or "",
    }
    for icon in dig(newest.service_version, "spec", "icon") or ():
        made["icon"] = {"base64data": icon["base64data"], "mediatype": icon["mediatype"]}
    return made


def _channels(bundles: Sequence[Published]) -> Iterator[Json]:
    for name in sorted({channel for each in bundles for channel in each.channels}):
        entries = [_entry(each) for each in bundles if name in each.channels]
        yield {
            "schema": "olm.channel",
            "package": bundles[0].package,
            "name": name,
            "entries": entries,
        }


def _entry(published: Published) -> Json:
    """Return where a version stands among the others; OLM upgrades along these words."""
    spec = published.service_version["spec"]
    made = {"name": published.name}
    for field in ("replaces", "skips"):
        if spec.get(field):
            made[field] = spec[field]
    annotations = dig(published.service_version, "metadata", "annotations") or {}
    if annotations.get("olm.skipRange"):
        made["skipRange"] = annotations["olm.skipRange"]
    return made


def _bundle(published: Published, image: str) -> Json:
    related = list(dig(published.service_version, "spec", "relatedImages") or ())
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


def _kinds(published: Published) -> Iterator[Json]:
    definitions = dig(published.service_version, "spec", "customresourcedefinitions") or {}
    for relation, name in (("owned", "olm.gvk"), ("required", "olm.gvk.required")):
        for entry in definitions.get(relation) or ():
            gvk = GVK(entry["name"].partition(".")[2], entry["version"], entry["kind"])
            yield _property(name, {"group": gvk.group, "kind": gvk.kind, "version": gvk.version})
    for each in published.dependencies:
        value = {_VERSION_RANGE.get(key, key): said for key, said in each.get("value", {}).items()}
        kind = str(each.get("type"))
        yield _property(_REQUIRED.get(kind, kind), value)


def _identity(published: Published) -> Json:
    value = {"packageName": published.package, "version": published.version}
    return _property("olm.package", value)


def _content(published: Published, image: str) -> Iterator[Json]:
    if not image:
        for thing in published.manifests:
            yield _property("olm.bundle.object", {"data": encoded(thing)})
        return
    version = published.service_version
    metadata = {name: version["spec"][name] for name in _METADATA if name in version["spec"]}
    metadata["annotations"] = dig(version, "metadata", "annotations") or {}
    metadata["crdDescriptions"] = version["spec"].get("customresourcedefinitions") or {}
    yield _property("olm.csv.metadata", metadata)


def _property(name: str, value: Json) -> Json:
    return {"type": name, "value": value}
