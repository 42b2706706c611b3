"""Validate the options of a bundle and assemble its ClusterServiceVersion. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from operator_runner import __version__
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json, Watch
from operator_runner.tools.bundle.manifests import (
    Manifests,
    Permissions,
    containers,
    name_of,
    nested,
    serves,
    without_cluster_metadata,
)
from operator_runner.tools.bundle.owned_crds import display_name, owned_crds, sample_resources
from operator_runner.tools.yaml_io import indented_json, load

# Semantic Versioning 2.0.0 without build metadata: names of objects cannot contain a plus.
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9a-z][0-9a-z-]*(\.[0-9a-z][0-9a-z-]*)*)?"
)
_CHANNEL = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """Version, channels and image of a bundle.

    Without `image` the manifests keep theirs; `use_image_digests` rejects images without a digest.
    """

    version: str
    channels: tuple[str, ...] = ("alpha",)
    default_channel: str = ""
    image: str = ""
    use_image_digests: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError for values that OLM rejects."""
        problems = []
        if not _VERSION.fullmatch(self.version):
            problems.append(
                f"--version: invalid semantic version {self.version!r}: write one such as 0.0.1"
            )
        problems += [
            f"--channels: invalid channel {channel!r}: use lower-case letters, digits, '-' and '.'"
            for channel in self.channels
            if not _CHANNEL.fullmatch(channel)
        ]
        if not self.channels:
            problems.append("--channels: name at least one, such as alpha")
        if self.default_channel and self.default_channel not in self.channels:
            problems.append(
                f"--default-channel: invalid channel {self.default_channel!r}: expected one of"
                f" {', '.join(self.channels)}"
            )
        if problems:
            raise ConfigError(*problems)


def precedence(version: str) -> tuple[object, ...]:
    """Return a sort key for semantic versions, by the precedence of their specification."""
    core, _, pre = version.partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    # A release is later than its pre-releases; numeric identifiers are earlier than others.
    parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre.split(".") if pre)
    return (numbers, not pre, parts)


KIND = "ClusterServiceVersion"
BUILDER = f"operator-runner-v{__version__}"
LAYOUT = "ansible.sdk.operatorframework.io/v1"
_ANNOTATIONS = "operators.operatorframework.io"
_NAME = re.compile(r"(?P<package>[a-z0-9][-a-z0-9.]*?)\.v\d.*")
_RELATED = "RELATED_IMAGE_"
_WEBHOOK_PATH, _WEBHOOK_PORT = "/convert", 9443


def package_of(manifests: Manifests) -> str:
    """Return the package's name, from the base's name PACKAGE.vVERSION. Raises ConfigError."""
    base = base_of(manifests)
    found = _NAME.fullmatch(name_of(base))
    if not found:
        raise manifests.error_at(
            base, "metadata.name", "expected PACKAGE.vVERSION, such as web.v0.0.0"
        )
    return found["package"]


def base_of(manifests: Manifests) -> Json:
    """Return the author's base ClusterServiceVersion. Raises ConfigError without exactly one."""
    hint = (
        "list one under `resources` of its kustomization (bases/PACKAGE.clusterserviceversion.yaml)"
    )
    return manifests.one(KIND, hint)


def cluster_service_version(
    manifests: Manifests, watches: Sequence[Watch], options: BundleOptions, granted: Permissions
) -> Json:
    """Return the ClusterServiceVersion of a bundle.

    The author's fields are kept; version, examples, kinds, permissions, Deployments, conversions
    and images are added. Raises ConfigError with the field at fault.
    """
    base = base_of(manifests)
    made = copy.deepcopy(base)
    made["metadata"]["name"] = f"{package_of(manifests)}.v{options.version}"
    made["metadata"].setdefault("namespace", "placeholder")
    spec = made.setdefault("spec", {})
    examples = _examples(manifests, base)
    images = list(_images(manifests))
    made["metadata"]["annotations"] = {
        **(base["metadata"].get("annotations") or {}),
        "alm-examples": indented_json(examples),
        "containerImage": _manager_image(manifests),
        f"{_ANNOTATIONS}/builder": BUILDER,
        f"{_ANNOTATIONS}/project_layout": LAYOUT,
    }
    spec["version"] = options.version
    if spec.get("replaces") == made["metadata"]["name"]:
        raise manifests.error_at(base, "spec.replaces", "a version cannot replace itself")
    rules = [rule for part in (granted.cluster, granted.namespaced) for item in part
             for rule in item["rules"]]  # fmt: skip
    kinds = spec.setdefault("customresourcedefinitions", {}) or {}
    spec["customresourcedefinitions"] = {
        **kinds,
        "owned": owned_crds(manifests, base, examples, rules),
    }
    spec.setdefault("apiservicedefinitions", {})
    spec["install"] = {"strategy": "deployment", "spec": _install(manifests, granted)}
    spec["relatedImages"] = _merged_images(spec.get("relatedImages") or [], images)
    if webhooks := _webhooks(manifests, watches):
        spec["webhookdefinitions"] = webhooks
    _check(manifests, spec, options)
    return _without_empty_fields(made)


def _examples(manifests: Manifests, base: Json) -> list[Json]:
    """Return the samples among the manifests and those of the author's annotation."""
    text = nested(base, "metadata", "annotations", "alm-examples") or "[]"
    source = f"{manifests.source}: {KIND} {name_of(base)}: metadata.annotations.alm-examples"
    own = load(text, source)
    found = {(item["apiVersion"], item["kind"], name_of(item)): item
             for item in (*own, *sample_resources(manifests))}  # fmt: skip
    return [without_cluster_metadata(found[key]) for key in sorted(found)]


def _install(manifests: Manifests, granted: Permissions) -> Json:
    made: Json = {
        "deployments": [
            {
                "name": name_of(item),
                "label": item["metadata"].get("labels") or {},
                "spec": item["spec"],
            }
            for item in manifests.of("Deployment")
        ]
    }
    if granted.cluster:
        made["clusterPermissions"] = granted.cluster
    if granted.namespaced:
        made["permissions"] = granted.namespaced
    return made


def _webhooks(manifests: Manifests, watches: Sequence[Watch]) -> list[Json]:
    """Return a webhook definition for each kind with conversions in watches.yaml."""
    deployments = manifests.of("Deployment")
    definitions = []
    for watch in watches:
        if not watch.conversions:
            continue
        crds = [
            crd
            for crd in manifests.of("CustomResourceDefinition")
            if serves(crd, watch.gvk.group, watch.gvk.kind)
        ]
        if not crds or not deployments:
            raise manifests.error_at(
                {"kind": "CustomResourceDefinition", "metadata": {"name": watch.gvk.kind}},
                "spec.versions",
                "watches.yaml declares conversions for this kind, but its definition is not among"
                " the manifests; add it to the kustomization",
            )
        definitions.append(
            {
                "type": "ConversionWebhook",
                "admissionReviewVersions": ["v1"],
                "containerPort": 443,
                "conversionCRDs": [name_of(crds[0])],
                "deploymentName": name_of(deployments[0]),
                "generateName": f"c{nested(crds[0], 'spec', 'names', 'plural')}.kb.io",
                "sideEffects": "None",
                "targetPort": _WEBHOOK_PORT,
                "webhookPath": _WEBHOOK_PATH,
            }
        )
    return sorted(definitions, key=lambda item: str(item["generateName"]))


def _images(manifests: Manifests) -> Iterator[Json]:
    """Yield the images to mirror: those of containers and of RELATED_IMAGE_ variables."""
    for deployment in manifests.of("Deployment"):
        for container in containers(deployment):
            yield {"name": container.get("name", ""), "image": container.get("image", "")}
            for variable in container.get("env") or ():
                name = str(variable.get("name", ""))
                if name.startswith(_RELATED) and variable.get("value"):
                    short = name.removeprefix(_RELATED).lower().replace("_", "-")
                    yield {"name": short, "image": variable["value"]}


def _merged_images(given: Sequence[Json], found: Sequence[Json]) -> list[Json]:
    names = {item["name"]: item for item in found} | {item.get("name"): item for item in given}
    return [names[name] for name in sorted(names, key=str)]


def _manager_image(manifests: Manifests) -> str:
    deployments = manifests.of("Deployment")
    if not deployments:
        raise manifests.error_at(
            base_of(manifests), "spec.install", "the manifests contain no Deployment to install"
        )
    images = {item.get("name"): item.get("image", "") for item in containers(deployments[0])}
    return str(images.get("manager") or next(iter(images.values()), ""))


def _check(manifests: Manifests, spec: Json, options: BundleOptions) -> None:
    base = base_of(manifests)
    modes = {item.get("type"): item.get("supported") for item in spec.get("installModes") or ()}
    if not any(modes.values()):
        raise manifests.error_at(
            base, "spec.installModes", "support at least one mode; AllNamespaces is usual"
        )
    only_all = [mode for mode, supported in modes.items() if supported] == ["AllNamespaces"]
    if spec.get("webhookdefinitions") and not only_all:
        raise manifests.error_at(
            base,
            "spec.installModes",
            "with a conversion webhook OLM supports only AllNamespaces; set the others to false",
        )
    without_digest = [
        item["image"] for item in spec["relatedImages"] if "@sha256:" not in item["image"]
    ]
    if options.use_image_digests and without_digest:
        raise manifests.error_at(
            base,
            "spec.relatedImages",
            f"--use-image-digests expects image@sha256:..., found {', '.join(without_digest)}",
        )


def _without_empty_fields(made: Json) -> Json:
    """Remove fields that a new project leaves empty: OLM rejects an empty icon."""
    spec: dict[str, Any] = made["spec"]
    spec["icon"] = [item for item in spec.get("icon") or () if item.get("base64data")]
    for field in ("icon", "links", "maintainers", "relatedImages"):
        if not spec.get(field):
            spec.pop(field, None)
    spec.setdefault("displayName", display_name(name_of(made).partition(".v")[0]))
    return made
