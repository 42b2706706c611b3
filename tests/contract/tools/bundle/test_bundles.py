"""Bundles and catalogs of real projects, as OLM's own programs and an API server take them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from operator_runner.devcluster import Cluster, binaries
from operator_runner.tools.bundle.bundle import ERROR, WARNING, scorecard, validate
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY
from tests.support.scaffold import create_api, init, run

_CRD = "CustomResourceDefinition"
VERSIONS = {"0.0.1": REPOSITORY / "releases" / "0.0.1", "0.0.2": REPOSITORY}
TESTS = [
    "basic-check-spec",
    "olm-bundle-validation",
    "olm-crds-have-validation",
    "olm-crds-have-resources",
    "olm-spec-descriptors",
    "olm-status-descriptors",
]
# Channels of the lesson are called alpha and beta; examples have no status.
EXPECTED = [("good-practices", "recommended naming convention"), (TESTS[-1], "status spec")]


@dataclass(frozen=True)
class Made:
    """The bundles of the nginx operator by version, and of a new project."""

    nginx: dict[str, Path]
    new: Path

    @property
    def all(self) -> list[Path]:
        return [*self.nginx.values(), self.new]


def make(folder: Path, *flags: str, project: Path = REPOSITORY, kustomize: str = "") -> Path:
    done = run(
        folder, "bundle", str(project), "--output=bundle", f"--kustomize={kustomize}", *flags
    )
    assert done.returncode == 0, done.stderr
    return folder / "bundle"


@pytest.fixture(scope="session")
def programs() -> Path:
    """Return the folder of OLM's own programs."""
    return binaries.find_olm(os.environ, Console())


@pytest.fixture(scope="session")
def kustomize(control_plane_cluster: Cluster) -> str:
    """Return the command that renders a folder."""
    return f"{control_plane_cluster.bin / 'kubectl'} kustomize"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, kustomize: str) -> Made:
    """Make the bundles as a user does; tests only read them."""
    root = tmp_path_factory.mktemp("bundles")
    nginx = {}
    for version, project in VERSIONS.items():
        (root / version).mkdir()
        channels = "alpha,beta,stable" if version == "0.0.2" else "alpha"
        flags = [
            f"--version={version}",
            f"--image=example.com/nginx-operator:v{version}",
            f"--channels={channels}",
            "--default-channel=alpha",
        ]
        nginx[version] = make(root / version, *flags, project=project, kustomize=kustomize)
    init(root / "cache-operator", "--domain=scaffold.test")
    create_api(root / "cache-operator", "Memcached", "--generate-role")
    new = root / "cache-operator"
    return Made(nginx, make(new, "--version=0.0.1", project=new, kustomize=kustomize))


def service_version(bundle: Path) -> Json:
    (file,) = bundle.glob("manifests/*.clusterserviceversion.yaml")
    found: Json = yaml.safe_load(file.read_text())
    return found


def examples(bundle: Path) -> list[Json]:
    found: list[Json] = json.loads(
        service_version(bundle)["metadata"]["annotations"]["alm-examples"]
    )
    return found


def test_the_validators_of_olm_accept_the_bundle(made: Made, programs: Path) -> None:
    """No validator, optional ones included, has anything against the nginx operator."""
    for bundle in made.nginx.values():
        found = list(validate(bundle, programs))
        odd = [item for item in found if not _expected(item.test, item.message)]
        assert odd == [], bundle
    assert [item for item in validate(made.new, programs) if item.level == ERROR] == []


def _expected(test: str, message: str) -> bool:
    return any(test == name and part in message for name, part in EXPECTED)


def test_opm_accepts_the_bundle(made: Made, programs: Path) -> None:
    """OLM's own command agrees: it reports errors in its log, not by its exit code."""
    for bundle in made.all:
        done = subprocess.run(
            [programs / "operator-verify", "manifests", bundle, "--operatorhub_validate",
             "--object_validate"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "deprecated; for equivalent" in done.stderr, "the optional validator has run"
        assert not re.findall(r"level=(?:error|fatal).*", done.stderr)


def test_all_scorecard_tests_pass(made: Made, programs: Path) -> None:
    """All six tests pass in the program of operator-sdk's images."""
    for bundle in made.all:
        config = yaml.safe_load((bundle / "tests" / "scorecard" / "config.yaml").read_text())
        tests = [test["entrypoint"][1] for test in config["stages"][0]["tests"]]
        assert sorted(tests) == sorted(TESTS)
        found = list(scorecard(bundle, programs))
        assert [item for item in found if item.level == ERROR] == []


def test_a_bundle_without_scorecard_tests_has_a_warning(
    made: Made, programs: Path, tmp_path: Path
) -> None:
    """OLM does not need them; the message names how to add them."""
    bundle = _copy(made.nginx["0.0.1"], tmp_path / "bundle")
    shutil.rmtree(bundle / "tests")
    (found,) = scorecard(bundle, programs)
    assert (found.level, found.test) == (WARNING, "scorecard")
    assert "has no tests/scorecard/config.yaml; to run them, add `../scorecard`" in found.message


def test_scorecard_and_validators_notice(made: Made, programs: Path, tmp_path: Path) -> None:
    """An incomplete bundle does not pass."""
    bundle = _copy(made.nginx["0.0.1"], tmp_path / "bundle")
    (file,) = bundle.glob("manifests/*.clusterserviceversion.yaml")
    content = yaml.safe_load(file.read_text())
    (owned,) = content["spec"]["customresourcedefinitions"]["owned"]
    owned["resources"], owned["specDescriptors"] = [], []
    content["metadata"]["annotations"]["capabilities"] = "Everything"
    file.write_text(yaml.safe_dump(content))
    failed = {item.test for item in scorecard(bundle, programs) if item.level == ERROR}
    assert failed == {"olm-crds-have-resources", "olm-spec-descriptors"}
    wrong = {item.test for item in validate(bundle, programs) if item.level == ERROR}
    assert "standardcapabilities" in wrong


def _copy(folder: Path, target: Path) -> Path:
    subprocess.run(["cp", "-r", folder, target], check=True)
    return target


def test_opm_accepts_a_catalog_of_both_versions(made: Made, programs: Path, tmp_path: Path) -> None:
    """`opm` accepts it with inline manifests and with images; 0.0.2 replaces 0.0.1."""
    bundles = [str(path) for path in made.nginx.values()]
    image = "--bundle-image=example.com/nginx-operator-bundle:v{version}"
    for name, flags in (("inline", []), ("images", [image])):
        done = run(tmp_path, "catalog", *bundles, f"--output={name}", *flags)
        assert done.returncode == 0, done.stderr
        _opm(programs, "validate", str(tmp_path / name))
    text = (tmp_path / "inline" / "nginx-operator" / "catalog.yaml").read_text()
    channels = {
        item["name"]: item["entries"]
        for item in yaml.safe_load_all(text)
        if item["schema"] == "olm.channel"
    }
    newer = {"name": "nginx-operator.v0.0.2", "replaces": "nginx-operator.v0.0.1"}
    assert channels == {
        "alpha": [{"name": "nginx-operator.v0.0.1"}, newer],
        "beta": [newer],
        "stable": [newer],
    }


def _opm(programs: Path, *arguments: str) -> None:
    done = subprocess.run(
        [programs / "opm", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_bundle_is_reproducible(made: Made, kustomize: str, tmp_path: Path) -> None:
    """The same bytes in the same files, so that a diff of a bundle shows only real changes."""
    again = make(
        tmp_path, "--version=0.0.1", "--image=example.com/nginx-operator:v0.0.1",
        "--channels=alpha", "--default-channel=alpha",
        project=VERSIONS["0.0.1"], kustomize=kustomize,
    )  # fmt: skip
    assert _content(again) == _content(made.nginx["0.0.1"])


def _content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_api_server_accepts_every_field(
    made: Made, programs: Path, kubectl: Kubectl, namespace: str
) -> None:
    """Strict validation against OLM's own CRD finds no unknown field."""
    crd = programs / "crds" / "0000_50_olm_00-clusterserviceversions.crd.yaml"
    kubectl("apply", "--server-side", f"--filename={crd}")
    kubectl.wait_for_kinds("clusterserviceversions.operators.coreos.com")
    strict = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-")
    for bundle in made.all:
        version = service_version(bundle)
        version["metadata"]["namespace"] = namespace
        kubectl(*strict, input_=yaml.safe_dump(version))
        kubectl(*strict, input_=yaml.safe_dump_all(_built_in(bundle)))


def _built_in(bundle: Path) -> Sequence[Json]:
    things = [yaml.safe_load(path.read_text()) for path in bundle.glob("manifests/*.yaml")]
    foreign = ("monitoring.coreos.com/", "operators.coreos.com/")
    found = [item for item in things if not item["apiVersion"].startswith(foreign)]
    # Definitions under another name: those of another version may be there, with objects.
    return [_of_another_group(item) if item["kind"] == _CRD else item for item in found]


def _of_another_group(crd: Json) -> Json:
    group = f"renamed.{crd['spec']['group']}"
    metadata = crd["metadata"] | {"name": f"{crd['spec']['names']['plural']}.{group}"}
    return crd | {"metadata": metadata, "spec": crd["spec"] | {"group": group}}


@pytest.mark.parametrize("version", VERSIONS)
def test_examples_can_be_applied(made: Made, kubectl: Kubectl, version: str) -> None:
    """Each example of the stored version passes the schema, and its spec is unchanged."""
    # In a group of its own: other tests have the definition of the real one.
    group = f"v{version.replace('.', '')}.scorecard.test"
    (crd,) = made.nginx[version].glob("manifests/operator.example.com_*.yaml")
    definition = yaml.safe_load(crd.read_text().replace("operator.example.com", group))
    stored = next(v["name"] for v in definition["spec"]["versions"] if v["storage"])
    definition["spec"].pop("conversion", None)
    kubectl.apply(definition)
    kubectl.wait_for_kinds(f"nginxoperators.{group}")
    tried = [e for e in examples(made.nginx[version]) if e["apiVersion"].endswith(f"/{stored}")]
    assert tried
    for example in tried:
        example["apiVersion"] = f"{group}/{stored}"
        kubectl("apply", "--validate=strict", "--filename=-", input_=yaml.safe_dump(example))
        found = kubectl.get(f"nginxoperators.{group}", example["metadata"]["name"])
        assert found is not None
        assert found["spec"].items() >= {"replicas": 1}.items()


def test_version_0_0_2_replaces_0_0_1(made: Made) -> None:
    """It serves both versions, converts between them, and needs no permissions for CRDs."""
    spec = service_version(made.nginx["0.0.2"])["spec"]
    assert spec["replaces"] == "nginx-operator.v0.0.1"
    owned = spec["customresourcedefinitions"]["owned"]
    assert [item["version"] for item in owned] == ["v1alpha1", "v1alpha2"]
    (webhook,) = spec["webhookdefinitions"]
    assert webhook["conversionCRDs"] == ["nginxoperators.operator.example.com"]
    install = spec["install"]["spec"]
    resources = [
        resource
        for part in ("clusterPermissions", "permissions")
        for item in install[part]
        for rule in item["rules"]
        for resource in rule["resources"]
    ]
    assert not {"customresourcedefinitions", "secrets", "*"} & set(resources)
    assert webhook["deploymentName"] in [item["name"] for item in install["deployments"]]


def test_the_metrics_are_in_the_bundle_without_kinds_of_prometheus(made: Made) -> None:
    """Their Service, and the role to read them, but nothing that OLM refuses without Prometheus."""
    for bundle in made.nginx.values():
        things = [yaml.safe_load(path.read_text()) for path in bundle.glob("manifests/*.yaml")]
        names = {(item["kind"], item["metadata"]["name"]) for item in things}
        assert {
            ("Service", "nginx-operator-controller-manager-metrics-service"),
            ("ClusterRole", "nginx-operator-metrics-reader"),
        } <= names
        assert not [item for item in things if "monitoring.coreos.com" in item["apiVersion"]]


def test_the_oldest_kubernetes_supports_the_pods(made: Made) -> None:
    """The sleep before a Pod stops, and the CRD's rule for new names, need 1.30."""
    for bundle in made.nginx.values():
        assert service_version(bundle)["spec"]["minKubeVersion"] == "1.30.0"


def test_the_bundle_of_the_repository_is_up_to_date(tmp_path: Path, kustomize: str) -> None:
    """`bundle/` and `bundle.Dockerfile` are what `make bundle` writes; after a change, run that."""
    text = (REPOSITORY / "Makefile").read_text()
    version, base = (
        re.findall(rf"^{name} \?= (\S+)$", text, re.MULTILINE)[0]
        for name in ("VERSION", "IMAGE_TAG_BASE")
    )
    flags = [f"--version={version}", f"--image={base}:v{version}", "--channels=alpha"]
    make(tmp_path, *flags, kustomize=kustomize)
    for part in ("bundle", "bundle.Dockerfile"):
        assert _texts(tmp_path / part) == _texts(REPOSITORY / part), "stale: run `make bundle`"


def _texts(path: Path) -> dict[str, str]:
    files = [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]
    return {str(item.relative_to(path.parent)): item.read_text() for item in files}


def test_create_api_extends_this_repository(
    tmp_path: Path, kubectl: Kubectl, kustomize: str
) -> None:
    """The nginx operator's own project takes another kind: manifests, bundle and `make install`."""
    root = tmp_path / "nginx-operator"
    root.mkdir()
    for part in ("PROJECT", "Makefile", "watches.yaml"):
        shutil.copy(REPOSITORY / part, root)
    for part in ("config", "crds", "molecule", "roles"):
        shutil.copytree(REPOSITORY / part, root / part)
    create_api(root, "Memcached", "--generate-role")
    kinds = [watch["kind"] for watch in yaml.safe_load((root / "watches.yaml").read_text())]
    assert kinds == ["NginxOperator", "Memcached"]
    objects = list(yaml.safe_load_all(kubectl("kustomize", str(root / "config" / "default"))))
    assert [item["metadata"]["name"] for item in objects if item["kind"] == _CRD] == [
        "memcacheds.cache.example.com",
        "nginxoperators.operator.example.com",
    ]
    (role,) = (item for item in objects if item["metadata"]["name"].endswith("-manager-role"))
    assert "memcacheds" in str(role["rules"])
    installing = subprocess.run(
        ["make", "--dry-run", "install", f"KUBECTL={kubectl.program}"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert installing[1:] == ["apply", "--filename=crds", "--filename=config/crd/bases"]
    files = [f"--filename={root / item.partition('=')[2]}" for item in installing[2:]]
    kubectl("apply", *files, "--dry-run=server")
    bundle = make(root, "--version=0.0.3", project=root, kustomize=kustomize)
    owned = service_version(bundle)["spec"]["customresourcedefinitions"]["owned"]
    assert [item["kind"] for item in owned] == ["Memcached", "NginxOperator", "NginxOperator"]


def test_errors_name_missing_files(tmp_path: Path, kustomize: str) -> None:
    """No project, and a project without manifests for OLM: each error has its folder and hint."""
    done = run(tmp_path, "bundle", "nowhere", "--version=0.0.1")
    assert (done.returncode, done.stderr) == (1, "Error: nowhere: no such directory\n")
    (tmp_path / "watches.yaml").write_text("[]\n")
    done = run(tmp_path, "bundle", "--version=0.0.1", f"--kustomize={kustomize}")
    assert done.returncode == 1
    assert "config/manifests: no such directory" in done.stderr
    done = run(tmp_path, "catalog", str(tmp_path))
    assert done.returncode == 1
    assert ": metadata/annotations.yaml is missing; name a folder that " in done.stderr
