"""Return the files of a bundle in the registry+v1 format. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from operator_runner.core.model import Json, Watch
from operator_runner.tools.bundle.bundle_options import BundleOptions
from operator_runner.tools.bundle.cluster_service_version import (
    BUILDER,
    KIND,
    LAYOUT,
    cluster_service_version,
    package_of,
)
from operator_runner.tools.bundle.manifests import (
    Manifests,
    name_of,
    nested,
    without_cluster_metadata,
)
from operator_runner.tools.bundle.owned_crds import sample_resources
from operator_runner.tools.bundle.permissions import permissions
from operator_runner.tools.yaml_io import dump

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

    package: str
    version: str
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
    return Bundle(package, options.version, dict(sorted(files.items())), labels)


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
