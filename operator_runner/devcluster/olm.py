"""The Operator Lifecycle Manager on a cluster with a node, and a catalog for it to install from.

Its programs are parts of the cluster like the others. They run in the node's namespaces: olm and
catalog listen on fixed ports, opm on all addresses, and these must not collide with other programs
of this machine. There is no package server, because only consoles use it.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from operator_runner.devcluster import host, locations, process, supervision
from operator_runner.devcluster.errors import ClusterError, NotRunning
from operator_runner.devcluster.locations import Home
from operator_runner.devcluster.network import Subnets
from operator_runner.devcluster.supervision import ESTABLISHED, ClusterState, Part

OPERATOR, CATALOG, SERVER = "olm-operator", "catalog-operator", "opm"
"""The parts; the first two are named as OLM's own Deployments are."""
NAMESPACE, SOURCE = "olm", "local"
"""Namespace and name of the CatalogSource."""
USER = "olm"
"""The kubeconfig and the certificate in the home's `pki` folder."""

_NAME = re.compile(r"[A-Za-z0-9][-.\w]{0,62}", re.ASCII)
_OBJECTS = Path(__file__).with_name("olm-objects.yaml")
_PORT = 50051
_STOP_GRACE_SECONDS = 2.0
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Olm:
    """OLM on the cluster in `home`, from the `programs` that `binaries.find_olm` gives."""

    home: Home
    programs: Path
    state: ClusterState

    def install(self) -> None:
        """Make OLM's objects and start its programs; return when it works.

        Existing objects are updated; running programs are kept.
        """
        host.require_visible(self.programs)
        crds = self.programs / "crds"
        # Too large for the annotation that an ordinary apply would write.
        self._kubectl("apply", "--server-side", "--force-conflicts", f"--filename={crds}")
        self._kubectl("wait", ESTABLISHED, f"--filename={crds}", f"--timeout={_SECONDS}s")
        self._kubectl("apply", f"--filename={_OBJECTS}")
        state = self.state
        for part in (self._operator(), self._catalog()):
            if not state.runs(part.name):
                state = supervision.start(self.home, state, part)
        supervision.wait_until_healthy(self.home, state, OPERATOR, CATALOG)

    def serve(self, name: str, catalog: Path) -> None:
        """Offer the packages of the file-based catalog in the folder `catalog`.

        It is copied as `name`, beside those of other names and in the place of an earlier one.
        Returns when OLM has connected. Raises ClusterError if opm rejects it.
        """
        if self.state.part(CATALOG) is None:
            raise NotRunning(
                "OLM is not on this cluster",
                hint="Install it with `operator-runner cluster olm up`.",
            )
        if not catalog.is_dir():
            raise ClusterError(
                f"{catalog}: not a directory", hint="Name the folder of the catalog."
            )
        if not _NAME.fullmatch(name):
            raise ClusterError(
                f"invalid catalog name {name!r}", hint="Use letters, digits, dots and dashes."
            )
        process.run_program(str(self.programs / "opm"), "validate", str(catalog))
        locations.private_folder(self.home.catalogs)
        place = self.home.catalogs / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(catalog, place)
        # opm reads its catalogs once, when it starts.
        running = self.state.processes.get(SERVER)
        if running is not None:
            process.end(running, grace=_STOP_GRACE_SECONDS)
        state = supervision.start(self.home, self.state, self._server())
        supervision.wait_until_healthy(self.home, state, SERVER)
        self._connect()

    def _operator(self) -> Part:
        command = (
            *("env", f"KUBECONFIG={self._kubeconfig}", str(self.programs / "olm")),
            f"--namespace={NAMESPACE}",
        )
        return Part(OPERATOR, command, f"http://{self._address}:8080/healthz", node=1)

    def _catalog(self) -> Part:
        pki = self.home.pki
        command = (
            *(str(self.programs / "catalog"), f"--kubeconfig={self._kubeconfig}"),
            f"--namespace={NAMESPACE}",
            # Without TLS it would listen where olm does; both take one port or the other.
            f"--tls-cert={pki / USER}-serving.crt",
            f"--tls-key={pki / USER}-serving.key",
            f"--client-ca={pki / 'ca.crt'}",
        )
        return Part(CATALOG, command, f"https://{self._address}:8443/healthz", node=1)

    def _server(self) -> Part:
        command = (
            *(str(self.programs / "opm"), "serve", str(self.home.catalogs)),
            f"--port={_PORT}",
            f"--cache-dir={self.home.catalogs.with_name('cache')}",
            # The cache is rebuilt when the catalogs change.
            "--cache-enforce-integrity=false",
            "--termination-log=/dev/null",
            "--pprof-addr=",
        )
        return Part(SERVER, command, f"tcp:{self._address}:{_PORT}", node=1)

    def _connect(self) -> None:
        """Recreate the CatalogSource, so that OLM drops its state of an earlier catalog."""
        source = {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "CatalogSource",
            "metadata": {"name": SOURCE, "namespace": NAMESPACE},
            "spec": {
                "sourceType": "grpc",
                # Within the node, where OLM runs too.
                "address": f"127.0.0.1:{_PORT}",
                "displayName": "Local catalogs",
                "publisher": "operator-runner",
            },
        }
        manifest = locations.write_file(
            self.home.catalogs.with_name("source.json"), json.dumps(source)
        )
        name = f"catalogsource/{SOURCE}"
        self._kubectl("delete", name, f"--namespace={NAMESPACE}", "--ignore-not-found")
        self._kubectl("apply", f"--filename={manifest}")
        self._kubectl(
            "wait",
            "--for=jsonpath={.status.connectionState.lastObservedState}=READY",
            *(name, f"--namespace={NAMESPACE}", f"--timeout={_SECONDS}s"),
        )

    @property
    def _kubeconfig(self) -> Path:
        return self.home.pki / f"{USER}.kubeconfig"

    @property
    def _address(self) -> str:
        assert self.state.slot is not None
        return Subnets(self.state.slot).node

    def _kubectl(self, *arguments: str) -> None:
        process.run_program(str(self.home.bin / "kubectl"), *arguments)
