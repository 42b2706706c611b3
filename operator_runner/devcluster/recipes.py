"""Builds from Go modules: Kubernetes and addons for the cluster itself, OLM for tests with it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from operator_runner.devcluster.errors import BinariesMissing

_MODULES = {
    "Kubernetes": "k8s.io/kubernetes",
    "CoreDNS": "github.com/coredns/coredns",
    "OLM": "github.com/operator-framework/operator-lifecycle-manager",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Build of all tools of one go.mod."""

    what: str
    """The result, for display."""
    source: Path
    """The folder of go.mod and go.sum."""
    version: str
    """The version of the module that gives it its name, such as `v1.36.3`."""
    options: tuple[str, ...]
    """Arguments of `go build`."""
    programs: tuple[str, ...]
    """The names under which the programs are found afterwards."""
    instead: str = ""
    """A hint for users without Go."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for Go."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Program as `go build` names it, after the last part of its package path: its real name."""
    folders: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Folders to copy beside the programs: name to module and path in the module."""

    @property
    def tag(self) -> str:
        """The name of the cache folder: version and a digest over everything that is pinned."""
        digest = hashlib.sha256()
        for path in (self.source / "go.mod", self.source / "go.sum"):
            digest.update(path.read_bytes())
        for path in sorted(self.source.glob("*/*.go")):
            digest.update(path.read_bytes())
        return f"{self.version}-{digest.hexdigest()[:12]}"


def kubernetes() -> Recipe:
    """Return the recipe of the cluster itself: stripped programs with their version."""
    source = source_folder()
    version = required_version(source, "Kubernetes")
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linker = " ".join(f"-X {package}.{name}={value}" for name, value in stamps.items())
    return Recipe(
        what="Kubernetes and etcd",
        source=source,
        version=version,
        options=("-trimpath", "-ldflags", f"-s -w {linker}"),
        programs=(
            *("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"),
            *("kube-scheduler", "kubelet", "kube-proxy"),
        ),
        instead="set KUBEBUILDER_ASSETS to a folder with the Kubernetes programs",
        renamed={"server": "etcd"},
    )


def addons() -> Recipe:
    """Return the recipe of the cluster's addons.

    Version of modules and options are those of Kubernetes wherever both use a package: then Go
    compiles it once, and this build takes seconds after that of Kubernetes.
    """
    source = source_folder() / "addons"
    return Recipe(
        what="CoreDNS and the provisioner of volumes",
        source=source,
        version=required_version(source, "CoreDNS"),
        options=("-trimpath", "-ldflags", "-s -w"),
        programs=("coredns", "local-provisioner"),
        instead="put them into the folder of KUBEBUILDER_ASSETS",
    )


def olm() -> Recipe:
    """Return the recipe of the Operator Lifecycle Manager: its programs, its validators, its CRDs.

    Without C: catalogs are files, so the database of older catalogs is not needed.
    """
    source = source_folder() / "olm"
    return Recipe(
        what="the Operator Lifecycle Manager",
        source=source,
        version=required_version(source, "OLM"),
        options=("-trimpath", "-tags", "containers_image_openpgp", "-ldflags", "-s -w"),
        programs=(
            *("olm", "catalog", "opm"),
            *("operator-verify", "bundle-validate", "scorecard-test"),
        ),
        environment={"CGO_ENABLED": "0"},
        folders={"crds": (_MODULES["OLM"], "deploy/chart/crds")},
    )


def source_folder() -> Path:
    """Return the folder of Kubernetes' go.mod: package data of a wheel, or of the checkout."""
    here = Path(__file__).parent
    places = (here / "controlplane", here.parents[1] / "controlplane")
    for place in places:
        if (place / "go.mod").is_file():
            return place
    raise BinariesMissing(
        f"the list of modules to build Kubernetes from is missing: no go.mod in {places[0]}",
        hint="Reinstall operator-runner, or set KUBEBUILDER_ASSETS to a folder of programs.",
    )


def required_version(source: Path, what: str) -> str:
    """Return the version of the main module that the go.mod of `source` requires."""
    module = _MODULES[what]
    go_mod = (source / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise BinariesMissing(f"{source / 'go.mod'} requires no {module}")
    return found[1]
