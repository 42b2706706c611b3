"""The operators of examples/, each run with exactly the permissions of its config/.

    @pytest.fixture(scope="module")
    def example(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
        with running("tstest", cluster, tmp_path_factory.mktemp("tstest")) as example:
            yield example

`cluster` is that of tests/e2e, or `control_plane_cluster`. The operator watches all namespaces, and
each test uses one of its own: the fixture `kubectl`.

The environment variable RECORD_REQUESTS=1 runs it as administrator instead, and writes what its
roles request into config/rbac/requests.yaml; then `operator-runner rbac --write config/rbac`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from operator_runner.devcluster import Cluster, pack
from operator_runner.tools.rbac.manager_deployment import find_manager
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY, Operator

FOLDER = REPOSITORY / "examples"
NAMES = tuple(sorted(path.parent.name for path in FOLDER.glob("*/watches.yaml")))
WITH_NAMES = frozenset({"scheduler"})
"""Examples whose permissions are restricted to names: `operator-runner rbac --names`."""
RECORDING = "RECORD_REQUESTS"

_REFUSED = re.compile(r"forbidden: User .* cannot \w+ resource .*")
# Those of the Pod: here the ports are free ones, and the webhook is reached by its address.
_OF_THE_POD = ("bind-address", "--webhook-service")


@dataclass(frozen=True)
class Example:
    """A copy of an example, installed in a cluster without its Deployment."""

    name: str
    project: Path
    """The copy; a test may edit it."""
    cluster: Cluster
    system: Kubectl
    """kubectl as administrator, in the namespace of the operator."""
    operator: Operator
    arguments: tuple[str, ...] = ()
    """The arguments that the operator was started with."""

    def restart(self) -> None:
        """Start the operator after it was killed."""
        self.operator.start(*self.restart_arguments)

    @property
    def restart_arguments(self) -> list[str]:
        """The arguments of an operator that does not wait for the Lease of the killed one."""
        return [argument for argument in self.arguments if "--leader-elect" not in argument]

    def assert_permitted(self, since: int = 0) -> None:
        """Assert that the log, from this character on, has no request that was refused."""
        assert not _REFUSED.findall(self.operator.log()[since:])

    def load_image(self, spec: str = "image.yaml") -> str:
        """Pack an image of the example and load it into the node; return its name."""
        archive = self.operator.scratch / "image.tar"
        pack(self.project / spec, archive)
        (name,) = self.cluster.load(archive)
        archive.unlink()
        return name


def copy_example(name: str, target: Path) -> Path:
    """Copy an example, without what its users have built there."""
    return Path(shutil.copytree(FOLDER / name, target, ignore=shutil.ignore_patterns("*.tar")))


def rendered(kubectl: Kubectl, project: Path) -> list[Json]:
    """Return the objects of config/default."""
    return list(yaml.safe_load_all(kubectl("kustomize", str(project / "config" / "default"))))


@contextmanager
def running(
    name: str,
    cluster: Cluster,
    scratch: Path,
    *flags: str,
    environment: Mapping[str, str] | None = None,
    start: bool = True,
    outage: bool = False,
) -> Iterator[Example]:
    """Install an example and start its operator with its own arguments and `flags`; remove all.

    Its namespace, permissions and environment are those of config/default. The API server must not
    refuse any request, but after an `outage`: it does so until it has loaded its roles.
    """
    project = copy_example(name, scratch / name)
    plain = Kubectl(cluster.bin / "kubectl", "default")
    objects = rendered(plain, project)
    manager = find_manager(objects)
    assert manager is not None, f"examples/{name}/config/default has no Deployment of the operator"
    system = Kubectl(plain.program, manager.namespace)
    # Some permissions are in other namespaces than the operator.
    anywhere = Kubectl(plain.program, "")
    recording = bool(os.environ.get(RECORDING))
    install_crds(system, project)
    others = [o for o in objects if o["kind"] not in {"CustomResourceDefinition", "Deployment"}]
    try:
        anywhere("apply", "--filename=-", input_=yaml.safe_dump_all(others))
        operator = Operator(
            project,
            cluster.kubeconfig if recording else system.kubeconfig(manager.account, scratch),
            "",
            scratch,
            {**_variables(objects), **(environment or {})},
        )
        arguments = [a for a in manager.args if not any(part in a for part in _OF_THE_POD)]
        if recording:
            arguments.append(f"--record-requests={FOLDER / name / 'config/rbac/requests.yaml'}")
        if start:
            operator.start(*arguments, *flags)
        try:
            example = Example(name, project, cluster, system, operator, (*arguments, *flags))
            yield example
            if not outage:
                example.assert_permitted()
        finally:
            # Finalizers and conversions need the operator.
            remove_crds(system, project)
            operator.kill()
    finally:
        anywhere(
            "delete", "--filename=-", "--ignore-not-found", "--timeout=300s",
            input_=yaml.safe_dump_all(others),
        )  # fmt: skip


def install_crds(kubectl: Kubectl, project: Path) -> None:
    """Install the CRDs of an example, if it has some, and wait until they are served."""
    if (project / "crds").exists():
        kubectl("apply", f"--filename={project / 'crds'}")
        names = kubectl("get", f"--filename={project / 'crds'}", "--output=name").split()
        kubectl.wait_for_kinds(*(name.rpartition("/")[2] for name in names))


def remove_crds(kubectl: Kubectl, project: Path) -> None:
    """Remove the CRDs of an example with all their resources."""
    if (project / "crds").exists():
        kubectl("delete", f"--filename={project / 'crds'}", "--ignore-not-found", "--timeout=300s")


def _variables(objects: list[Json]) -> dict[str, str]:
    """Return the variables of the manager that have a plain value."""
    containers = [
        container
        for body in objects
        if body["kind"] == "Deployment"
        for container in body["spec"]["template"]["spec"]["containers"]
    ]
    return {
        variable["name"]: variable["value"]
        for container in containers
        for variable in container.get("env", [])
        if "value" in variable
    }
