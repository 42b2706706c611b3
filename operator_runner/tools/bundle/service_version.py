"""The ClusterServiceVersion: what OLM installs, and what a catalog shows of it. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

from operator_runner import __version__
from operator_runner.core.model import Json, Watch
from operator_runner.tools.bundle.descriptors import words
from operator_runner.tools.bundle.owned import owned, samples
from operator_runner.tools.bundle.permissions import Permissions
from operator_runner.tools.bundle.project import Rendered, bare, containers, dig, name_of, serves
from operator_runner.tools.bundle.wanted import Wanted
from operator_runner.tools.yaml_io import parse, readable

KIND = "ClusterServiceVersion"
BUILDER = f"operator-runner-v{__version__}"
LAYOUT = "ansible.sdk.operatorframework.io/v1"
_ANNOTATIONS = "operators.operatorframework.io"
_NAME = re.compile(r"(?P<package>[a-z0-9][-a-z0-9.]*?)\.v\d.*")
_RELATED = "RELATED_IMAGE_"
_WEBHOOK_PATH, _WEBHOOK_PORT = "/convert", 9443


def package_of(rendered: Rendered) -> str:
    """Return the package's name: what stands before the version in the name of the base."""
    base = base_of(rendered)
    found = _NAME.fullmatch(name_of(base))
    if not found:
        raise rendered.problem(
            base, "metadata.name", "it must be PACKAGE.vVERSION, as in web.v0.0.0"
        )
    return found["package"]


def base_of(rendered: Rendered) -> Json:
    """Return the ClusterServiceVersion that the author has begun."""
    cure = (
        "list one under `resources` of its kustomization (bases/PACKAGE.clusterserviceversion.yaml)"
    )
    return rendered.one(KIND, cure)


def service_version(
    rendered: Rendered, watches: Sequence[Watch], wanted: Wanted, rights: Permissions
) -> Json:
    """Return the ClusterServiceVersion of a bundle.

    What the author has written stays; version, examples, kinds, permissions, Deployments,
    conversions and images are filled in. Raises ConfigError with the field that is in the way.
    """
    base = base_of(rendered)
    made = copy.deepcopy(base)
    made["metadata"]["name"] = f"{package_of(rendered)}.v{wanted.version}"
    made["metadata"].setdefault("namespace", "placeholder")
    spec = made.setdefault("spec", {})
    examples = _examples(rendered, base)
    images = list(_images(rendered))
    made["metadata"]["annotations"] = {
        **(base["metadata"].get("annotations") or {}),
        "alm-examples": readable(examples),
        "containerImage": _manager_image(rendered),
        f"{_ANNOTATIONS}/builder": BUILDER,
        f"{_ANNOTATIONS}/project_layout": LAYOUT,
    }
    spec["version"] = wanted.version
    if spec.get("replaces") == made["metadata"]["name"]:
        raise rendered.problem(base, "spec.replaces", "a version cannot replace itself")
    rules = [rule for part in (rights.cluster, rights.namespaced) for each in part
             for rule in each["rules"]]  # fmt: skip
    kinds = spec.setdefault("customresourcedefinitions", {}) or {}
    spec["customresourcedefinitions"] = {**kinds, "owned": owned(rendered, base, examples, rules)}
    spec.setdefault("apiservicedefinitions", {})
    spec["install"] = {"strategy": "deployment", "spec": _install(rendered, rights)}
    spec["relatedImages"] = _merged_images(spec.get("relatedImages") or [], images)
    if webhooks := _webhooks(rendered, watches):
        spec["webhookdefinitions"] = webhooks
    _check(rendered, spec, wanted)
    return _without_blanks(made)


def _examples(rendered: Rendered, base: Json) -> list[Json]:
    """Return the samples among the manifests, and those of the author's own annotation."""
    text = dig(base, "metadata", "annotations", "alm-examples") or "[]"
    source = f"{rendered.source}: {KIND} {name_of(base)}: metadata.annotations.alm-examples"
    own = parse(f"items: {text}", source)[0]["items"]
    found = {(each["apiVersion"], each["kind"], name_of(each)): each
             for each in (*own, *samples(rendered))}  # fmt: skip
    return [bare(found[key]) for key in sorted(found)]


def _install(rendered: Rendered, rights: Permissions) -> Json:
    made: Json = {
        "deployments": [
            {
                "name": name_of(each),
                "label": each["metadata"].get("labels") or {},
                "spec": each["spec"],
            }
            for each in rendered.of("Deployment")
        ]
    }
    if rights.cluster:
        made["clusterPermissions"] = rights.cluster
    if rights.namespaced:
        made["permissions"] = rights.namespaced
    return made


def _webhooks(rendered: Rendered, watches: Sequence[Watch]) -> list[Json]:
    """Return a definition for each kind that watches.yaml has conversions of."""
    deployments = rendered.of("Deployment")
    definitions = []
    for watch in watches:
        if not watch.conversions:
            continue
        crds = [
            crd
            for crd in rendered.of("CustomResourceDefinition")
            if serves(crd, watch.gvk.group, watch.gvk.kind)
        ]
        if not crds or not deployments:
            raise rendered.problem(
                {"kind": "CustomResourceDefinition", "metadata": {"name": watch.gvk.kind}},
                "spec.versions",
                "watches.yaml has conversions of it, and the manifests lack the definition",
            )
        definitions.append(
            {
                "type": "ConversionWebhook",
                "admissionReviewVersions": ["v1"],
                "containerPort": 443,
                "conversionCRDs": [name_of(crds[0])],
                "deploymentName": name_of(deployments[0]),
                "generateName": f"c{dig(crds[0], 'spec', 'names', 'plural')}.kb.io",
                "sideEffects": "None",
                "targetPort": _WEBHOOK_PORT,
                "webhookPath": _WEBHOOK_PATH,
            }
        )
    return sorted(definitions, key=lambda each: str(each["generateName"]))


def _images(rendered: Rendered) -> Iterator[Json]:
    """Yield the images that a mirror must have: of containers, and named to roles by variables."""
    for deployment in rendered.of("Deployment"):
        for container in containers(deployment):
            yield {"name": container.get("name", ""), "image": container.get("image", "")}
            for variable in container.get("env") or ():
                name = str(variable.get("name", ""))
                if name.startswith(_RELATED) and variable.get("value"):
                    short = name.removeprefix(_RELATED).lower().replace("_", "-")
                    yield {"name": short, "image": variable["value"]}


def _merged_images(given: Sequence[Json], found: Sequence[Json]) -> list[Json]:
    names = {each["name"]: each for each in found} | {each.get("name"): each for each in given}
    return [names[name] for name in sorted(names, key=str)]


def _manager_image(rendered: Rendered) -> str:
    deployments = rendered.of("Deployment")
    if not deployments:
        raise rendered.problem(
            base_of(rendered), "spec.install", "there is no Deployment to install"
        )
    images = {each.get("name"): each.get("image", "") for each in containers(deployments[0])}
    return str(images.get("manager") or next(iter(images.values()), ""))


def _check(rendered: Rendered, spec: Json, wanted: Wanted) -> None:
    base = base_of(rendered)
    modes = {each.get("type"): each.get("supported") for each in spec.get("installModes") or ()}
    if not any(modes.values()):
        raise rendered.problem(
            base, "spec.installModes", "at least one must be supported; AllNamespaces is usual"
        )
    only_all = [mode for mode, supported in modes.items() if supported] == ["AllNamespaces"]
    if spec.get("webhookdefinitions") and not only_all:
        raise rendered.problem(
            base,
            "spec.installModes",
            "with a conversion webhook OLM allows AllNamespaces alone: a kind is converted for all",
        )
    loose = [each["image"] for each in spec["relatedImages"] if "@sha256:" not in each["image"]]
    if wanted.pinned and loose:
        raise rendered.problem(
            base,
            "spec.relatedImages",
            f"--use-image-digests wants image@sha256:..., found {', '.join(loose)}",
        )


def _without_blanks(made: Json) -> Json:
    """Drop what a new project leaves to be filled in: OLM takes an empty icon for a broken one."""
    spec: dict[str, Any] = made["spec"]
    spec["icon"] = [each for each in spec.get("icon") or () if each.get("base64data")]
    for field in ("icon", "links", "maintainers", "relatedImages"):
        if not spec.get(field):
            spec.pop(field, None)
    spec.setdefault("displayName", words(name_of(made).partition(".v")[0]))
    return made
