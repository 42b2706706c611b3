"""Operators by the Operator Lifecycle Manager itself: installed, then upgraded.

OLM runs on the local cluster, and installs from catalogs of bundles that are made here, of images
that are built here. Nothing comes from a registry.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from demo.olm_install import Installation, Phase
from demo.steady_client import SteadyClient
from operator_runner.devcluster import Cluster
from tests.e2e.conftest import EXAMPLE, RELEASES
from tests.support.examples import FOLDER
from tests.support.kubectl import Json, Kubectl
from tests.support.nginx import KIND, nginx
from tests.support.olm import CONDITION, condition_of
from tests.support.operator import REPOSITORY
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("images")

NAMESPACE = "nginx-by-olm"
FIRST, SECOND = "nginx-operator.v0.0.1", "nginx-operator.v0.0.2"
DEPLOYMENT = "deployment/nginx-operator-controller-manager"
PODS = "control-plane=controller-manager"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:nginx-operator-controller-manager"
CRD = f"crd/{KIND}"
BUSY = "tables are moved"


@dataclass
class World:
    """The state of an installation by OLM."""

    system: Kubectl
    web: Kubectl
    installation: Installation
    phases: list[str] = field(default_factory=list)

    def approve(self, version: str) -> None:
        """Approve the InstallPlan of a version, as soon as OLM creates it."""
        plan = eventually(
            lambda: self.installation.plan(version), seconds=240, details=self.installation.trouble
        )
        assert plan is not None
        self.installation.approve(plan)

    def wait_for(self, version: str) -> None:
        """Wait until OLM reports the version as installed, and no other one exists."""

        def look() -> dict[str, Phase]:
            phases = self.installation.phases()
            details = f"{[(name, phase.name) for name, phase in phases.items()]}"
            if details not in self.phases[-1:]:
                self.phases.append(details)
            return phases

        def is_installed(phases: dict[str, Phase]) -> bool:
            # Failed is not final: OLM installs again, for example when a Deployment took too long.
            return set(phases) == {version} and phases[version].name == "Succeeded"

        eventually(look, is_installed, seconds=600, details=self.details)

    def details(self) -> str:
        """Return the states of OLM and the operator, for a failure."""
        log = self.system.run("logs", DEPLOYMENT, "--tail=50")
        pods = self.system.run("describe", "pods").stdout[-3000:]
        return "\n".join([*self.phases, self.installation.trouble(), pods, log.stdout, log.stderr])

    def is_upgradeable(self, version: str) -> None:
        """Wait until the operator has reported that it may be upgraded.

        It may start before OLM grants it access to the OperatorCondition, and retries then.
        """
        eventually(
            lambda: condition_of(self.system, version),
            lambda condition: condition.get("status") == "True",
            seconds=240,
            details=self.details,
        )

    def set_upgradeable(self, status: str) -> None:
        """Set the operator's condition to its value while a run blocks upgrades."""
        conditions = [condition_of(self.system, FIRST) | {"status": status, "message": BUSY}]
        patch = json.dumps({"spec": {"conditions": conditions}})
        self.system("patch", CONDITION, FIRST, "--type=merge", f"--patch={patch}")

    def overrules(self, status: str) -> None:
        """Override the operator, as in docs/watches.md for administrators."""
        reason = {"reason": "OperatorIsStable", "message": "we go ahead"}
        overrides = [{"type": "Upgradeable", "status": status, **reason}]
        patch = json.dumps({"spec": {"overrides": overrides}})
        self.system("patch", CONDITION, FIRST, "--type=merge", f"--patch={patch}")

    def url(self) -> str:
        """Return where nginx is fetched through the Service, once there is one."""
        service = eventually(lambda: self.web.get("service", "web"), details=self.details)
        assert service is not None
        port = service["spec"]["ports"][0]["port"]
        return f"http://{service['spec']['clusterIP']}:{port}/"

    def may(self, *arguments: str) -> bool:
        """Return True if the operator's account has a permission."""
        permitted = self.system.run("auth", "can-i", *arguments, f"--as={ACCOUNT}")
        answer = permitted.stdout.strip()
        assert answer in {"yes", "no"}, permitted.stderr
        return answer == "yes"


def answers(url: str) -> bool:
    """Return True if nginx serves a page."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def runner(*arguments: str) -> str:
    """Run operator-runner as a user does; return its output."""
    program = str(Path(sys.executable).with_name("operator-runner"))
    done = subprocess.run(
        [program, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def olm(cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster with OLM, and without the CRD, so that OLM installs it.

    For the tests that come after, the CRD is put back and OLM ended.
    """
    cluster.exec(["kubectl", "delete", CRD, "--wait=true"])
    cluster.install_olm()
    yield cluster
    for part in ("olm-operator", "catalog-operator", "opm"):
        cluster.stop_part(part)
    cluster.exec(["kubectl", "delete", CRD, "--wait=true", "--ignore-not-found"])
    cluster.exec(["kubectl", "apply", "--filename", str(REPOSITORY / "crds")])
    Kubectl(cluster.bin / "kubectl", "default").wait_for_kinds(KIND)


@pytest.fixture(scope="module")
def catalog(operator_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the bundles of both versions, with the images of this machine, and a catalog of them."""
    folder = tmp_path_factory.mktemp("olm")
    bundles = []
    for version, project in RELEASES.items():
        bundles.append(folder / version)
        options = [f"--version={version}", f"--image={operator_images[version]}"]
        runner("bundle", str(project), *options, f"--output={bundles[-1]}")
    runner("catalog", *map(str, bundles), f"--output={folder / 'catalog'}")
    return folder / "catalog"


@pytest.fixture(scope="module")
def example_catalog(
    operator_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Make the bundle of an example, and a catalog of it."""
    folder = tmp_path_factory.mktemp("olm-example")
    options = ["--version=0.1.0", f"--image={operator_images[EXAMPLE]}"]
    runner("bundle", str(FOLDER / EXAMPLE), *options, f"--output={folder / 'bundle'}")
    runner("catalog", str(folder / "bundle"), f"--output={folder / 'catalog'}")
    return folder / "catalog"


@pytest.fixture
def world(olm: Cluster, catalog: Path, nginx_image: str) -> Iterator[World]:
    """Subscribe to the package, from its first version on; nothing is approved yet."""
    system = Kubectl(olm.bin / "kubectl", NAMESPACE)
    web = Kubectl(olm.bin / "kubectl", "web-by-olm")
    web("create", "namespace", web.namespace)
    source = olm.serve_catalog("nginx-operator", catalog)

    def kubectl(arguments: tuple[str, ...], input_: str | None) -> str:
        return system(*arguments, input_=input_)

    installation = Installation(kubectl, NAMESPACE, "nginx-operator", "alpha", source)
    installation.subscribe(FIRST, {"RELATED_IMAGE_NGINX": nginx_image})
    yield World(system, web, installation)
    # The resource goes before the operator that converts it.
    for namespace in (web.namespace, NAMESPACE):
        web("delete", "namespace", namespace, "--wait=true")


def test_olm_installs_and_upgrades_after_approval(world: World) -> None:
    """From nothing to 0.0.1 to 0.0.2, by two approvals; nginx answers each request meanwhile.

    While the operator reports that it must not be upgraded, OLM waits, until it is overruled.
    """
    url = installs(world)
    has_the_rights_of_its_bundle_and_no_others(world)
    upgrades(world, url)


def installs(world: World) -> str:
    """See that nothing happens before the approval, and that then nginx answers; return where."""
    plan = eventually(
        lambda: world.installation.plan(FIRST), seconds=240, details=world.installation.trouble
    )
    assert plan is not None
    assert world.installation.phases() == {}

    world.installation.approve(plan)
    world.wait_for(FIRST)

    world.web.apply(nginx(version="v1alpha1", port=8080, replicas=2))
    url = world.url()
    eventually(lambda: answers(url), seconds=240, details=world.details)
    world.is_upgradeable(FIRST)
    return url


def has_the_rights_of_its_bundle_and_no_others(world: World) -> None:
    """Check that the needed permissions are granted, and none that the bundle does not contain.

    OLM adds the Secret of a webhook, the OperatorCondition and the review of tokens.
    """
    condition = f"operatorconditions.operators.coreos.com/{FIRST}"
    for needed in (
        ("list", KIND, "--all-namespaces"),
        ("patch", "deployments.apps", "--namespace=default"),
        ("create", "leases.coordination.k8s.io"),
        ("patch", condition, f"--namespace={NAMESPACE}"),
    ):
        assert world.may(*needed), needed
    for beyond in (
        ("list", "secrets", "--all-namespaces"),
        ("get", "secrets", "--namespace=default"),
        ("create", "pods", "--namespace=default"),
        ("delete", KIND, "--namespace=default"),
        ("update", CRD.replace("crd/", "customresourcedefinitions/")),
        ("create", "clusterrolebindings"),
        ("*", "*", "--all-namespaces"),
    ):
        assert not world.may(*beyond), beyond
    assert_nothing_was_refused(world)


def upgrades(world: World, url: str) -> None:
    """Check that the resource is converted, the old version deleted, and no request failed."""
    stored = world.web.get(KIND, "web")
    assert stored is not None
    assert stored["apiVersion"].endswith("/v1alpha1")

    with SteadyClient(url) as client:
        world.set_upgradeable("False")
        world.approve(SECOND)
        waits_for_the_operator(world)
        world.overrules("True")
        world.wait_for(SECOND)
        converted = eventually(lambda: upgraded(world), details=world.details)

    assert converted is not None
    assert converted["spec"]["ports"][0]["containerPort"] == 8080
    assert converted["spec"]["replicas"] == 2
    old = world.web.get("nginxoperators.v1alpha1.operator.example.com", "web")
    assert old is not None
    assert old["spec"]["port"] == 8080
    assert client.failures == []
    assert client.fetched > 0
    assert world.system.get("clusterserviceversion", FIRST) is None
    world.is_upgradeable(SECOND)
    assert_nothing_was_refused(world)


def waits_for_the_operator(world: World) -> None:
    """See that OLM holds the approved upgrade back, and for the operator's reason."""

    def is_held(phases: dict[str, Phase]) -> bool:
        return SECOND in phases and phases[SECOND].reason == "OperatorConditionNotUpgradeable"

    phases = eventually(world.installation.phases, is_held, seconds=240, details=world.details)
    assert FIRST in phases
    assert phases[SECOND].name == "Pending"
    assert BUSY in phases[SECOND].message


def assert_nothing_was_refused(world: World) -> None:
    """Search the operator's log for rejected requests.

    The first report to the OperatorCondition may be; see `World.is_upgradeable`.
    """
    log = world.system("logs", f"--selector={PODS}", "--tail=-1")
    refused = [line for line in log.splitlines() if "forbidden" in line.lower()]
    assert [line for line in refused if "operatorconditions" not in line] == []


def upgraded(world: World) -> Json | None:
    """Return the resource in the new version, once the new operator has reconciled it."""
    found = world.web.get("nginxoperators.v1alpha2.operator.example.com", "web")
    if found is None:
        return None
    # One of the replicas has reconciled it. A Pod of the old version may end meanwhile, which
    # kubectl reports as an error.
    lines = world.system.run("logs", f"--selector={PODS}", "--tail=-1").stdout.splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    done = [one for one in records if one.get("msg") == "Reconciled" and one.get("name") == "web"]
    return found if done else None


@pytest.fixture
def subscribed(olm: Cluster, catalog: Path, example_catalog: Path) -> Iterator[dict[str, Kubectl]]:
    """Create install/*.yaml; return kubectl for the namespace of each package."""
    names = ("nginx-operator", f"{EXAMPLE}-operator")
    for name, folder in zip(names, (catalog, example_catalog), strict=True):
        olm.serve_catalog(name, folder)
    packages = {name: Kubectl(olm.bin / "kubectl", f"my-{name}") for name in names}
    for name, kubectl in packages.items():
        kubectl("create", f"--filename={REPOSITORY / 'install' / name}.yaml")
    yield packages
    for name, kubectl in packages.items():
        kubectl("delete", f"--filename={REPOSITORY / 'install' / name}.yaml")


@pytest.mark.slow
def test_a_file_installs_a_package(subscribed: dict[str, Kubectl], kubectl: Kubectl) -> None:
    """The newest version of the channel, without approval; the operators work."""
    nginx_system, example_system = subscribed.values()
    wait_installed(nginx_system, SECOND)
    wait_installed(example_system, f"{EXAMPLE}-operator.v0.1.0")
    kubectl.apply(nginx("front", replicas=0))
    kubectl("apply", f"--kustomize={FOLDER / EXAMPLE / 'config/samples'}")
    for made in ("deployment/front", "eru/web"):
        kubectl("wait", "--for=create", made, "--timeout=240s")
    kubectl("delete", "--all", "erus,nginxoperators,deployments", "--timeout=240s")
    kubectl("delete", "crd", "erus.mtsre.meitu.com")


def wait_installed(system: Kubectl, version: str) -> None:
    """Wait until OLM reports the version as installed."""

    def phase() -> str:
        found = system.get("clusterserviceversions.operators.coreos.com", version) or {}
        return str(found.get("status", {}).get("phase"))

    def details() -> str:
        described = system.run("describe", "subscriptions,installplans,csv,pods").stdout
        return described[-10000:]

    eventually(phase, lambda seen: seen == "Succeeded", seconds=600, details=details)
