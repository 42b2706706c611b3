"""The programs of the control plane: certificates, kubeconfigs and command lines."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from operator_runner.core.kubeconfig import render_kubeconfig
from operator_runner.devcluster import locations, network
from operator_runner.devcluster.locations import Home, name_on_node
from operator_runner.devcluster.supervision import Part
from operator_runner.net import x509

_VALIDITY = dt.timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Files of a certificate and its private key, both PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that signs into one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        """Create the authority's own key pair as `name`.crt and `name`.key in `folder` (0700)."""
        self._folder = folder
        self._key = x509.new_key()
        self._certificate = x509.issue_ca(
            self._key, x509.subject_name(name), now=dt.datetime.now(dt.UTC), lifetime=_VALIDITY
        )
        self.pair = _store(folder, name, self._certificate, self._key)

    def client(self, file: str, user: str, group: str | None = None) -> KeyPair:
        """Sign a client certificate: Kubernetes reads CN as the user and O as the group."""
        return self._sign(file, x509.subject_name(user, group), ())

    def server(self, file: str, names: Sequence[str]) -> KeyPair:
        """Sign a certificate for the DNS names and IP addresses `names`.

        It is also a client certificate: etcd uses one pair for both.
        """
        return self._sign(file, x509.subject_name(file), names)

    def _sign(self, file: str, subject: x509.Name, names: Sequence[str]) -> KeyPair:
        key = x509.new_key()
        certificate = x509.issue(
            key,
            subject,
            (self._certificate, self._key),
            now=dt.datetime.now(dt.UTC),
            lifetime=_VALIDITY,
            names=names,
            purposes=[x509.CLIENT_AUTH, *([x509.SERVER_AUTH] if names else [])],
        )
        return _store(self._folder, file, certificate, key)


def signing_key(path: Path) -> Path:
    """Write a private key for signing service account tokens (ES256) to `path`."""
    return locations.write_file(path, _key_pem(x509.new_key()))


def _store(folder: Path, name: str, certificate: x509.Certificate, key: x509.PrivateKey) -> KeyPair:
    return KeyPair(
        locations.write_file(folder / f"{name}.crt", x509.certificate_pem(certificate)),
        locations.write_file(folder / f"{name}.key", _key_pem(key)),
    )


def _key_pem(key: x509.PrivateKey) -> bytes:
    # The API server finds no public key in the PKCS#8 form of an elliptic key.
    return x509.key_pem(key, traditional=True)


def kubeconfig(*, server: str, authority: Path, user: KeyPair, name: str) -> str:
    """Return a kubeconfig whose one context `name` carries its certificates within itself.

    `server` is the API server's URL, `authority` the PEM file of the authority that signed it.
    """
    return render_kubeconfig(
        name,
        cluster={"server": server, "certificate-authority-data": _encoded(authority)},
        user={
            "client-certificate-data": _encoded(user.certificate),
            "client-key-data": _encoded(user.key),
        },
        namespace="default",
    )


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


LOOPBACK = "127.0.0.1"


def node_name(number: int) -> str:
    """Return the name of a node in the API; numbers begin with 1."""
    return f"node-{number}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of the API server, and the addresses that it assigns to Services."""

    address: str
    port: int
    services: ipaddress.IPv4Network
    nodes: tuple[str, ...]
    """Addresses of the nodes; none for a control plane without any."""

    @property
    def url(self) -> str:
        """The API server's URL."""
        return f"https://{self.address}:{self.port}"

    @property
    def service(self) -> str:
        """Address of the Service `kubernetes`: always the first one of the range."""
        return str(self.services[1])


def issue(home: Home, endpoint: Endpoint, cluster: str) -> None:
    """Make all keys, certificates and kubeconfigs of a cluster, in the home's `pki` folder."""
    authority = Authority(home.pki, "ca")
    # etcd trusts an authority of its own: no client certificate of the cluster opens it.
    etcd_authority = Authority(home.pki, "etcd-ca")
    names = [
        *dict.fromkeys([LOOPBACK, endpoint.address, endpoint.service]),
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    # The certificate of both the server and the client of etcd.
    etcd_authority.server("etcd", [LOOPBACK])
    authority.server("api-server", names)
    # With it the API server fetches logs and opens exec sessions.
    authority.client("to-kubelet", "kube-apiserver", "system:masters")
    # Serves the health checks of controller manager and scheduler.
    authority.server("loopback", [LOOPBACK])
    signing_key(home.pki / "service-accounts.key")
    users = {
        home.kubeconfig: authority.client("admin", "admin", "system:masters"),
        **{
            home.pki / f"{part}.kubeconfig": authority.client(part, f"system:{part}")
            for part in ("kube-controller-manager", "kube-scheduler", "kube-proxy")
        },
    }
    for number, address in enumerate(endpoint.nodes, start=1):
        file, node = name_on_node("kubelet", number), node_name(number)
        user = authority.client(file, f"system:node:{node}", "system:nodes")
        users[home.pki / f"{file}.kubeconfig"] = user
        authority.server(f"{file}-serving", [address, node])
    if endpoint.nodes:
        for addon in ("coredns", "local-provisioner"):
            users[home.pki / f"{addon}.kubeconfig"] = authority.client(addon, f"system:{addon}")
        # Only used where OLM is installed.
        users[home.pki / "olm.kubeconfig"] = authority.client("olm", "system:olm")
        authority.server("olm-serving", [endpoint.nodes[0]])
    for path, user_pair in users.items():
        ca = authority.pair.certificate
        locations.write_file(
            path, kubeconfig(server=endpoint.url, authority=ca, user=user_pair, name=cluster)
        )


@dataclass(frozen=True, slots=True)
class ApiServerOptions:
    """Options that are off by default."""

    admission_plugins: tuple[str, ...] = ()
    """Names of plugins besides those of every cluster."""
    audit_policy: Path | None = None
    """Policy of the audit log, which is `audit.log` beside the logs of the parts; None: no log."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The programs of one cluster's control plane."""

    programs: Path
    """Folder of the Kubernetes programs and etcd."""
    home: Home
    endpoint: Endpoint
    etcd_ports: tuple[int, int, int]
    """Loopback ports for clients, peers and health checks."""
    options: ApiServerOptions

    def etcd(self) -> Part:
        """Return etcd."""
        client, peer, metrics = (f"{LOOPBACK}:{port}" for port in self.etcd_ports)
        pki = self.home.pki
        command = (
            str(self.programs / "etcd"),
            f"--data-dir={self.home.etcd}",
            "--name=default",
            f"--listen-client-urls=https://{client}",
            f"--advertise-client-urls=https://{client}",
            f"--listen-peer-urls=https://{peer}",
            f"--initial-advertise-peer-urls=https://{peer}",
            f"--initial-cluster=default=https://{peer}",
            f"--listen-metrics-urls=http://{metrics}",
            "--client-cert-auth",
            f"--trusted-ca-file={pki}/etcd-ca.crt",
            f"--cert-file={pki}/etcd.crt",
            f"--key-file={pki}/etcd.key",
            "--peer-client-cert-auth",
            f"--peer-trusted-ca-file={pki}/etcd-ca.crt",
            f"--peer-cert-file={pki}/etcd.crt",
            f"--peer-key-file={pki}/etcd.key",
            # The data need not survive a power failure: `cluster up` starts a new cluster then.
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        # /readyz instead of /health: it does not depend on a write of the moment.
        return Part("etcd", command, f"http://{metrics}/readyz")

    def api_server(self) -> Part:
        """Return the API server."""
        endpoint, pki = self.endpoint, self.home.pki
        plugins = ("NodeRestriction", *self.options.admission_plugins)
        command = [
            str(self.programs / "kube-apiserver"),
            f"--etcd-servers=https://{LOOPBACK}:{self.etcd_ports[0]}",
            f"--etcd-cafile={pki}/etcd-ca.crt",
            f"--etcd-certfile={pki}/etcd.crt",
            f"--etcd-keyfile={pki}/etcd.key",
            f"--bind-address={endpoint.address}",
            f"--advertise-address={endpoint.address}",
            f"--secure-port={endpoint.port}",
            f"--service-cluster-ip-range={endpoint.services}",
            f"--client-ca-file={pki}/ca.crt",
            f"--tls-cert-file={pki}/api-server.crt",
            f"--tls-private-key-file={pki}/api-server.key",
            "--authorization-mode=Node,RBAC",
            f"--enable-admission-plugins={','.join(plugins)}",
            f"--service-account-key-file={pki}/service-accounts.key",
            f"--service-account-signing-key-file={pki}/service-accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--kubelet-client-certificate={pki}/to-kubelet.crt",
            f"--kubelet-client-key={pki}/to-kubelet.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            "--profiling=false",
        ]
        if not endpoint.nodes:
            # Endpoints must not be loopback addresses, and without Pods they are not needed.
            command.append("--endpoint-reconciler-type=none")
        if self.options.audit_policy is not None:
            command.append(f"--audit-policy-file={self.options.audit_policy}")
            command.append(f"--audit-log-path={self.home.log_of('audit')}")
        return Part("kube-apiserver", tuple(command), f"{endpoint.url}/readyz")

    def controller_manager(self) -> Part:
        """Return the controller manager, with each controller under its own service account."""
        pki = self.home.pki
        return self._controller(
            "kube-controller-manager",
            "--use-service-account-credentials=true",
            # The usual 20 requests a second, meant for busy clusters, hold up the start by seconds.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            f"--service-account-private-key-file={pki}/service-accounts.key",
            f"--root-ca-file={pki}/ca.crt",
            f"--cluster-signing-cert-file={pki}/ca.crt",
            f"--cluster-signing-key-file={pki}/ca.key",
        )

    def scheduler(self) -> Part:
        """Return the scheduler."""
        return self._controller("kube-scheduler")

    def _controller(self, name: str, *own: str) -> Part:
        pki = self.home.pki
        config = pki / f"{name}.kubeconfig"
        [port] = network.free_ports(LOOPBACK, 1)
        command = (
            str(self.programs / name),
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={pki}/loopback.crt",
            f"--tls-private-key-file={pki}/loopback.key",
            # One of each: an election would only delay the start.
            "--leader-elect=false",
            *own,
        )
        return Part(name, command, f"https://{LOOPBACK}:{port}/healthz")


def prepare(
    programs: Path, home: Home, endpoint: Endpoint, cluster: str, options: ApiServerOptions
) -> ControlPlane:
    """Make credentials and choose ports for the control plane of the cluster called `cluster`."""
    client, peer, metrics = network.free_ports(LOOPBACK, 3)
    issue(home, endpoint, cluster)
    return ControlPlane(programs, home, endpoint, (client, peer, metrics), options)
