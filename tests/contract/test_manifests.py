"""The manifests that install the nginx operator, as a real API server takes them."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import yaml

from operator_runner.config.flags.options import RunCommand, run_options
from operator_runner.config.flags.values import settings_from
from operator_runner.core.settings import Address, ShardSettings
from tests.support.kubectl import Json, Kubectl
from tests.support.nginx import installed_with
from tests.support.operator import REPOSITORY

CONFIG = REPOSITORY / "config"


def rendered(kubectl: Kubectl, folder: str) -> dict[tuple[str, str], Json]:
    """Return what kustomize makes of a folder, by kind and name."""
    documents = yaml.safe_load_all(kubectl("kustomize", str(CONFIG / folder)))
    return {(d["kind"], d["metadata"]["name"]): d for d in documents}


def test_the_api_server_accepts_all_manifests(kubectl: Kubectl) -> None:
    """Everything of config/default and config/samples passes strict server-side validation."""
    kubectl = replace(kubectl, namespace="nginx-operator-system")
    metadata = {"name": kubectl.namespace}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    kubectl("apply", f"--kustomize={CONFIG / 'crd'}")
    kubectl.wait_for_kinds("nginxoperators.operator.example.com")
    for folder in ("default", "samples"):
        kubectl(
            "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
            f"--kustomize={CONFIG / folder}",
        )  # fmt: skip


def test_manifests_have_the_usual_names_and_flags(kubectl: Kubectl) -> None:
    """The objects have the names, the prefix and the arguments of the Operator SDK tutorial."""
    objects = rendered(kubectl, "default")
    assert set(objects) == {
        ("Namespace", "nginx-operator-system"),
        ("CustomResourceDefinition", "nginxoperators.operator.example.com"),
        ("ServiceAccount", "nginx-operator-controller-manager"),
        ("Role", "nginx-operator-leader-election-role"),
        ("RoleBinding", "nginx-operator-leader-election-rolebinding"),
        ("ClusterRole", "nginx-operator-manager-role"),
        ("ClusterRoleBinding", "nginx-operator-manager-rolebinding"),
        ("ClusterRole", "nginx-operator-nginxoperator-editor-role"),
        ("ClusterRole", "nginx-operator-nginxoperator-viewer-role"),
        ("ClusterRole", "nginx-operator-webhook-role"),
        ("ClusterRoleBinding", "nginx-operator-webhook-rolebinding"),
        ("Role", "nginx-operator-webhook-role"),
        ("RoleBinding", "nginx-operator-webhook-rolebinding"),
        ("Service", "nginx-operator-webhook-service"),
        ("PodDisruptionBudget", "nginx-operator-controller-manager"),
        ("Deployment", "nginx-operator-controller-manager"),
    }
    manager = objects["Deployment", "nginx-operator-controller-manager"]
    (container,) = manager["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "--leader-elect",
        "--leader-election-id=nginx-operator",
        "--health-probe-bind-address=:8081",
        "--metrics-bind-address=127.0.0.1:8080",
        "--webhook-service=nginx-operator-webhook-service",
    ]


def test_two_replicas_serve_the_webhook(kubectl: Kubectl) -> None:
    """Both are behind its Service, and one stays while nodes are drained."""
    objects = rendered(kubectl, "default")
    manager = objects["Deployment", "nginx-operator-controller-manager"]["spec"]
    budget = objects["PodDisruptionBudget", "nginx-operator-controller-manager"]["spec"]
    service = objects["Service", "nginx-operator-webhook-service"]["spec"]
    assert manager["replicas"] == 2
    assert budget["minAvailable"] == 1
    labels = manager["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert service["selector"].items() <= labels.items()


def in_another_place(
    kubectl: Kubectl, scratch: Path, overlay: str, *components: str, prefix: str = "team-a-"
) -> list[Json]:
    """Return what an overlay installs as namespace `elsewhere` with a prefix."""
    for part in ("config", "crds"):
        shutil.copytree(REPOSITORY / part, scratch / part, dirs_exist_ok=True)
    kustomization = scratch / "config" / overlay / "kustomization.yaml"
    text = kustomization.read_text()
    text = text.replace("namespace: nginx-operator-system", "namespace: elsewhere")
    text = text.replace("Prefix: nginx-operator-", f"Prefix: {prefix}")
    if components:
        text += f"components: [{', '.join(components)}]\n"
    kustomization.write_text(text)
    return list(yaml.safe_load_all(kubectl("kustomize", str(kustomization.parent))))


def test_another_namespace_and_prefix_break_nothing(kubectl: Kubectl, tmp_path: Path) -> None:
    """Every name that an object refers to is that of another one, and the API server takes all."""
    assert_references_resolve(in_another_place(kubectl, tmp_path, "manifests/operator"))
    documents = in_another_place(kubectl, tmp_path, "default")
    assert_references_resolve(documents)
    objects = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    secrets = objects["Role", "team-a-webhook-role"]["rules"][0]
    assert secrets["resourceNames"] == ["team-a-webhook-service-certificate"]
    kubectl.run("create", "namespace", "elsewhere")
    kubectl = replace(kubectl, namespace="elsewhere")
    strict = ("--dry-run=server", "--validate=strict", "--filename=-")
    # Other tests register the CRD with a URL, with which no Service can be merged.
    crd = objects.pop(("CustomResourceDefinition", "nginxoperators.operator.example.com"))
    is_there = kubectl.run("get", "crd", crd["metadata"]["name"]).returncode == 0
    kubectl("replace" if is_there else "create", *strict, input_=yaml.safe_dump(crd))
    rest = yaml.safe_dump_all(objects.values())
    kubectl("apply", "--server-side", "--force-conflicts", *strict, input_=rest)


def test_another_namespace_and_prefix_reach_the_components(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    """Metrics, their monitor and cert-manager's certificate follow too."""
    components = ("../prometheus", "../certmanager")
    documents = in_another_place(kubectl, tmp_path, "default", *components)
    assert_references_resolve(documents)
    objects = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    certificate = objects["Certificate", "team-a-serving-cert"]["spec"]
    assert ("Issuer", certificate["issuerRef"]["name"]) in objects
    assert certificate["dnsNames"] == [
        "team-a-webhook-service.elsewhere.svc",
        "team-a-webhook-service.elsewhere.svc.cluster.local",
    ]
    crd = objects["CustomResourceDefinition", "nginxoperators.operator.example.com"]
    injected = crd["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert injected == "elsewhere/team-a-serving-cert"


def test_a_prefix_may_have_words_of_the_names(kubectl: Kubectl, tmp_path: Path) -> None:
    """The issuer and the certificate of cert-manager are found with such a prefix too."""
    prefix = "a-webhook-service-serving-cert-"
    documents = in_another_place(kubectl, tmp_path, "default", "../certmanager", prefix=prefix)
    objects = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    certificate = objects["Certificate", f"{prefix}serving-cert"]["spec"]
    assert certificate["issuerRef"]["name"] == f"{prefix}selfsigned-issuer"
    crd = objects["CustomResourceDefinition", "nginxoperators.operator.example.com"]
    injected = crd["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert injected == f"elsewhere/{prefix}serving-cert"


def assert_references_resolve(documents: list[Json]) -> None:
    """Check account, roles and Service of the webhook, in CRD and argument, and all namespaces."""
    objects = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    assert {d["metadata"].get("namespace", "elsewhere") for d in documents} == {"elsewhere"}
    assert ("Namespace", "elsewhere") in objects
    for each in documents:
        if each["kind"].endswith("Binding"):
            assert (each["roleRef"]["kind"], each["roleRef"]["name"]) in objects
            for subject in each["subjects"]:
                assert subject["namespace"] == "elsewhere"
                assert (subject["kind"], subject["name"]) in objects
    pod = objects["Deployment", "team-a-controller-manager"]["spec"]["template"]["spec"]
    assert ("ServiceAccount", pod["serviceAccountName"]) in objects
    (webhook,) = (a for a in pod["containers"][0]["args"] if a.startswith("--webhook-service="))
    assert ("Service", webhook.partition("=")[2]) in objects
    crd = objects["CustomResourceDefinition", "nginxoperators.operator.example.com"]
    service = crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert (service["name"], service["namespace"]) == ("team-a-webhook-service", "elsewhere")


def test_the_metrics_component_protects_the_endpoint(kubectl: Kubectl, tmp_path: Path) -> None:
    """With the component config/metrics the manager authorizes readers, and may do so."""
    documents = installed_with("metrics", kubectl, tmp_path)
    objects = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    manager = objects["Deployment", "nginx-operator-controller-manager"]
    args = manager["spec"]["template"]["spec"]["containers"][0]["args"]
    made = settings_from(_options(*args), {}, ())
    assert made.metrics == Address("", 8443)
    assert (made.metrics_secure, made.metrics_require_rbac) == (True, True)
    binding = objects["ClusterRoleBinding", "nginx-operator-metrics-auth-rolebinding"]
    assert binding["roleRef"]["name"] == "nginx-operator-metrics-auth-role"
    assert binding["subjects"][0]["name"] == "nginx-operator-controller-manager"
    rules = objects["ClusterRole", "nginx-operator-metrics-auth-role"]["rules"]
    assert [rule["resources"] for rule in rules] == [["tokenreviews"], ["subjectaccessreviews"]]
    assert ("ClusterRole", "nginx-operator-metrics-reader") in objects
    # Without the Namespace: a dry run does not create it for the objects after it.
    rest = [d for d in documents if d["kind"].startswith("Cluster")]
    kubectl("apply", "--dry-run=server", "--filename=-", input_=yaml.safe_dump_all(rest))


def test_the_shards_component_scales_the_operator(kubectl: Kubectl, tmp_path: Path) -> None:
    """All replicas work, may have Leases of any name, and the autoscaler sets their number."""
    documents = installed_with("shards", kubectl, tmp_path)
    objects = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    manager = objects["Deployment", "nginx-operator-controller-manager"]["spec"]
    assert "replicas" not in manager
    args = manager["template"]["spec"]["containers"][0]["args"]
    assert settings_from(_options(*args), {}, ()).shards == ShardSettings(None)
    (autoscaler,) = (d for d in documents if d["kind"] == "HorizontalPodAutoscaler")
    target = autoscaler["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) in objects
    (role,) = (d for d in documents if d["metadata"]["name"].endswith("leader-election-role"))
    shared = next(rule for rule in role["rules"] if "delete" in rule["verbs"])
    assert (shared["resources"], "resourceNames" in shared) == (["leases"], False)
    autoscaler["metadata"]["namespace"] = kubectl.namespace
    strict = ("--dry-run=server", "--validate=strict", "--filename=-")
    kubectl("apply", *strict, input_=yaml.safe_dump(autoscaler))


def test_certificates_of_cert_manager_are_mounted(kubectl: Kubectl, tmp_path: Path) -> None:
    """With the component config/certmanager the operator mounts them, and has no right to more."""
    documents = installed_with("certmanager", kubectl, tmp_path)
    objects = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    certificate = objects["Certificate", "nginx-operator-serving-cert"]
    namespace = certificate["metadata"]["namespace"]
    crd = objects["CustomResourceDefinition", "nginxoperators.operator.example.com"]
    injected = crd["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert injected == f"{namespace}/{certificate['metadata']['name']}"
    service = crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert ("Service", service["name"]) in objects
    assert f"{service['name']}.{service['namespace']}.svc" in certificate["spec"]["dnsNames"]
    issuer = certificate["spec"]["issuerRef"]
    assert (issuer["kind"], issuer["name"]) in objects
    pod = objects["Deployment", "nginx-operator-controller-manager"]["spec"]["template"]["spec"]
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    secrets = {v["secret"]["secretName"]: v["name"] for v in pod["volumes"] if "secret" in v}
    name = secrets[certificate["spec"]["secretName"]]
    assert f"--webhook-cert-dir={mounts[name]}" in pod["containers"][0]["args"]
    assert not mounts[name].startswith("/tmp/")  # runs may write there and could read the key
    rules = [rule for body in documents for rule in body.get("rules", [])]
    resources = {resource for rule in rules for resource in rule.get("resources", [])}
    assert not resources & {"secrets", "customresourcedefinitions"}


def _options(*args: str) -> dict[str, Any]:
    @click.command(cls=RunCommand)
    @run_options
    def run(**options: Any) -> dict[str, Any]:
        return options

    parsed = run.main(list(args), standalone_mode=False)
    assert isinstance(parsed, dict)
    return parsed


def test_no_right_is_a_wildcard(kubectl: Kubectl) -> None:
    """Each rule names its groups, resources and verbs; the operator deletes what it prunes only."""
    objects = rendered(kubectl, "default")
    rules: list[dict[str, Any]] = [
        rule
        for (kind, _), body in objects.items()
        if "Role" in kind
        for rule in body.get("rules", [])
    ]
    assert rules
    assert not [rule for rule in rules if "*" in str(rule)]
    own = objects["ClusterRole", "nginx-operator-manager-role"]["rules"]
    deleted = [rule["resources"] for rule in own if "delete" in rule["verbs"]]
    assert deleted == [["services"], ["deployments"]]


def test_the_images_of_the_operand_are_named_once(kubectl: Kubectl) -> None:
    """Those of the manager's environment are the defaults of the role, exact versions."""
    manager = rendered(kubectl, "default")["Deployment", "nginx-operator-controller-manager"]
    (container,) = manager["spec"]["template"]["spec"]["containers"]
    images = {e["name"]: e["value"] for e in container["env"] if "RELATED_IMAGE" in e["name"]}
    defaults = (REPOSITORY / "roles" / "nginx" / "defaults" / "main.yml").read_text()
    assert set(images) == {"RELATED_IMAGE_NGINX", "RELATED_IMAGE_NGINX_EXPORTER"}
    for name, image in images.items():
        assert f"'{name}') or '{image}'" in defaults
        assert re.fullmatch(r"docker.io/[a-z/-]+:\d+\.\d+\.\d+", image)
