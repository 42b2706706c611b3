"""All files of a bundle, in the format registry+v1. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from operator_runner.core.model import Json, Watch
from operator_runner.tools.bundle.owned import samples
from operator_runner.tools.bundle.permissions import permissions
from operator_runner.tools.bundle.project import Rendered, bare, dig, name_of
from operator_runner.tools.bundle.service_version import (
    BUILDER,
    KIND,
    LAYOUT,
    package_of,
    service_version,
)
from operator_runner.tools.bundle.wanted import Wanted
from operator_runner.tools.yaml_io import dump

MANIFESTS, METADATA, SCORECARD = "manifests/", "metadata/", "tests/scorecard/"
ANNOTATIONS = "metadata/annotations.yaml"
PREFIX = "operators.operatorframework.io."

# What OLM installs from a bundle; see the supported resources of operator-registry.
_INSTALLED = {
    *("ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition"),
    *("NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "PriorityClass", "PrometheusRule"),
    *("Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "ServiceMonitor"),
    *("ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin", "ConsoleQuickStart"),
    *("ConsoleYAMLSample", "VerticalPodAutoscaler"),
}
# What the ClusterServiceVersion says, or the Subscription decides.
_ELSEWHERE = {KIND, "Deployment", "Namespace"}


@dataclass(frozen=True, slots=True)
class Bundle:
    """One version of an operator as OLM takes it."""

    package: str
    version: str
    files: Mapping[str, str]
    """Path within the bundle to text."""
    labels: Mapping[str, str]
    """The labels of its image, the same as in its annotations.yaml."""


def dockerfile(labels: Mapping[str, str], folder: str) -> str:
    """Return what a bundle's image is built from, with the bundle in `folder` of the context."""
    at = f"{folder.rstrip('/')}/" if folder else ""
    lines = ["# The image of the bundle; made together with it.", "FROM scratch", ""]
    lines += [f"LABEL {name}={value}" for name, value in labels.items()]
    lines.append("")
    copied = [MANIFESTS, METADATA]
    if f"{PREFIX}test.config.v1" in labels:
        copied.append(SCORECARD)
    lines += [f"COPY {at}{path} /{path}" for path in copied]
    return "\n".join(lines) + "\n"


def bundle(rendered: Rendered, watches: Sequence[Watch], wanted: Wanted) -> Bundle:
    """Return the bundle of a project; ConfigError names what in its manifests is in the way."""
    if wanted.image:
        rendered = rendered.with_image(wanted.image)
    package = package_of(rendered)
    rights = permissions(rendered)
    version = service_version(rendered, watches, wanted, rights)
    files = {f"{MANIFESTS}{package}.clusterserviceversion.yaml": dump(version)}
    for thing in _manifests(rendered, rights.taken):
        files[MANIFESTS + _file_name(thing)] = dump(bare(thing))
    tests = [thing for thing in rendered.of("Configuration") if _is_scorecard(thing)]
    if tests:
        files[f"{SCORECARD}config.yaml"] = dump(bare(tests[0]))
    labels = _labels(package, wanted, tested=bool(tests))
    files[ANNOTATIONS] = dump({"annotations": labels})
    return Bundle(package, wanted.version, dict(sorted(files.items())), labels)


def _manifests(rendered: Rendered, taken: frozenset[tuple[str, str]]) -> Iterator[Json]:
    """Yield what OLM is to apply beside the ClusterServiceVersion."""
    examples = {id(sample) for sample in samples(rendered)}
    for thing in rendered.objects:
        kind = str(thing.get("kind"))
        if (
            kind in _ELSEWHERE
            or id(thing) in examples
            or (kind, name_of(thing)) in taken
            or _is_scorecard(thing)
        ):
            continue
        if kind not in _INSTALLED:
            raise rendered.problem(
                thing,
                "kind",
                "OLM does not install this kind; leave it out of what the kustomization lists"
                " (OLM makes certificates for webhooks itself)",
            )
        yield thing


def _is_scorecard(thing: Json) -> bool:
    return str(thing.get("apiVersion", "")).startswith("scorecard.operatorframework.io/")


def _file_name(thing: Json) -> str:
    """Return the name that operator-sdk gives such a file."""
    if thing["kind"] == "CustomResourceDefinition":
        return f"{dig(thing, 'spec', 'group')}_{dig(thing, 'spec', 'names', 'plural')}.yaml"
    api = str(thing["apiVersion"]).replace("/", "_")
    return f"{name_of(thing)}_{api}_{thing['kind'].lower()}.yaml"


def _labels(package: str, wanted: Wanted, *, tested: bool) -> dict[str, str]:
    labels = {
        "bundle.mediatype.v1": "registry+v1",
        "bundle.manifests.v1": MANIFESTS,
        "bundle.metadata.v1": METADATA,
        "bundle.package.v1": package,
        "bundle.channels.v1": ",".join(wanted.channels),
    }
    if wanted.default_channel:
        labels["bundle.channel.default.v1"] = wanted.default_channel
    labels |= {
        "metrics.builder": BUILDER,
        "metrics.mediatype.v1": "metrics+v1",
        "metrics.project_layout": LAYOUT,
    }
    if tested:
        labels |= {"test.mediatype.v1": "scorecard+v1", "test.config.v1": SCORECARD}
    return {PREFIX + name: value for name, value in labels.items()}
