"""Read the features that the operator's Deployment enables by arguments and environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from operator_runner.config.flags.options import RunCommand, run_options
from operator_runner.config.flags.values import settings_from
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json, Watch
from operator_runner.core.settings import JobSettings, WebhookSettings
from operator_runner.tools.rbac.access_rules import CLUSTER_WIDE, OWN_NAMESPACE
from operator_runner.tools.rbac.requirements import EnabledFeatures

PLACEHOLDER = "system"
"""Namespace in manifests before kustomize sets the real one."""
_LABELS = (("control-plane", "controller-manager"),)
"""Labels of the manager's Pods as `operator-runner init` sets them."""
_PROXY, _OLM, _ALL = "kube-rbac-proxy", "olm.targetNamespaces", "AllNamespaces"
_OPERATOR_VARIABLES = {"WATCH_NAMESPACE", "OPERATOR_NAME", "ANSIBLE_GATHERING"}
_OPERATOR_WORDS = ("ansible-operator", "operator-runner", "--leader-elect", "--watches-file")
_USED = ("WATCH_NAMESPACE", "OPERATOR_CONDITION_NAME", "OPERATOR_NAME")


@dataclass(frozen=True, slots=True)
class Manager:
    """The operator's Deployment: namespace, ServiceAccount, arguments, environment, labels."""

    namespace: str = PLACEHOLDER
    account: str = ""
    args: tuple[str, ...] = ()
    environ: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = _LABELS
    """Those that select its Pods."""
    container: str = ""
    """Names of the Deployment and its container: `web/manager`."""
    has_proxy: bool = False
    """Whether kube-rbac-proxy is beside it, which needs reviews."""
    olm_modes: frozenset[str] | None = None
    """Install modes if WATCH_NAMESPACE is the choice of the OLM; None if it is not."""

    @property
    def olm_limits_namespaces(self) -> bool:
        """Whether the OLM never chooses all namespaces; it grants Roles in the chosen ones."""
        return bool(self.olm_modes) and _ALL not in (self.olm_modes or ())


def find_manager(documents: Sequence[Json]) -> Manager | None:
    """Return the operator's Deployment among manifests, or None. Raises ConfigError for several.

    Their ClusterServiceVersion determines the namespaces that the OLM can choose.
    """
    modes = frozenset(
        mode["type"]
        for body in documents
        if body.get("kind") == "ClusterServiceVersion"
        for mode in body["spec"].get("installModes") or ()
        if mode.get("supported")
    )
    found = [each for body in documents if (each := _manager(body, modes)) is not None]
    if len(found) > 1:
        raise ConfigError(
            f"several Deployments run an operator: {', '.join(each.container for each in found)};"
            " name the operator's file with --manager"
        )
    return found[0] if found else None


def features_of(manager: Manager, watches: Sequence[Watch]) -> EnabledFeatures:
    """Return the features that these arguments enable. Raises ConfigError for invalid ones."""
    try:
        context = _run.make_context("run", [*manager.args])
        settings = settings_from(context.params, dict(manager.environ), watches)
    except click.UsageError as error:
        raise ConfigError(f"args of the manager: {error.format_message()}") from error
    except ConfigError as error:
        raise ConfigError(*(f"args of the manager: {each}" for each in error.problems)) from error
    election = settings.leader_election
    own = manager.namespace
    if manager.olm_limits_namespaces:
        settings = replace(settings, namespaces=(own,))
    return EnabledFeatures(
        own_namespace="" if own == PLACEHOLDER else own,
        scopes=tuple(_scope(name, own) for name in settings.namespaces) or (CLUSTER_WIDE,),
        lease=election.lease_name if election.enabled else "",
        lease_scope=_scope(election.namespace or own, own),
        shards=settings.shards is not None,
        reviews=manager.has_proxy
        or (settings.metrics is not None and settings.metrics_require_rbac),
        reviewer=f"the sidecar {_PROXY}" if manager.has_proxy else "--metrics-require-rbac",
        operator_condition=settings.operator_condition,
        inject_owner_ref=settings.inject_owner_ref,
        job_secret=_job_secret(settings.jobs, own),
        job_port=0 if settings.jobs.service is None else settings.jobs.port,
        **_webhook(settings.webhook, own),
    )


def _job_secret(settings: JobSettings, own: str) -> tuple[str, str] | None:
    """Return scope and name of the Secret of the port for Jobs, None without a Service."""
    if settings.service is None:
        return None
    namespace, name, _ = settings.service
    return _scope(namespace or own, own), f"{name}-certificate"


def _webhook(settings: WebhookSettings, own: str) -> dict[str, Any]:
    """Return the fields of EnabledFeatures for conversions; none with certificates in files."""
    if settings.cert_dir_given:
        return {}
    if settings.service is None:
        return {"webhook": bool(settings.host)}
    namespace, name, _ = settings.service
    secret = _scope(namespace or own, own), f"{name}-certificate"
    return {"webhook": True, "webhook_secret": secret}


@click.command(cls=RunCommand)
@run_options
def _run(**_: Any) -> None:
    """Parse the arguments of `operator-runner run` without running it."""


def _scope(namespace: str, own: str) -> str:
    return OWN_NAMESPACE if namespace == own else namespace


def _manager(body: Json, modes: frozenset[str]) -> Manager | None:
    if body.get("kind") != "Deployment":
        return None
    pod = body["spec"]["template"]["spec"]
    container = _operator_container(pod["containers"])
    if container is None:
        return None
    namespace = body["metadata"].get("namespace") or PLACEHOLDER
    values = {one["name"]: _value(one, namespace) for one in container.get("env") or ()}
    return Manager(
        namespace,
        pod.get("serviceAccountName") or "default",
        (*map(str, container.get("args") or ()), *_certificates(container)),
        tuple((name, values[name]) for name in _USED if values.get(name)),
        tuple(((body["spec"].get("selector") or {}).get("matchLabels") or {}).items()) or _LABELS,
        f"{body['metadata']['name']}/{container['name']}",
        any(map(_is_proxy, pod["containers"])),
        modes if any(_OLM in str(each) for each in container.get("env") or ()) else None,
    )


def _operator_container(containers: Sequence[Json]) -> Json | None:
    """Return the container that runs the operator: by its name, or by what it runs."""
    others = [each for each in containers if not _is_proxy(each)]
    named = [each for each in others if each["name"] == "manager"]
    return next(iter(named or filter(_runs_operator, others)), None)


def _is_proxy(container: Json) -> bool:
    return _PROXY in f"{container['name']} {container.get('image')}"


def _runs_operator(container: Json) -> bool:
    variables = {each["name"] for each in container.get("env") or ()}
    words = [*map(str, (*(container.get("command") or ()), *(container.get("args") or ())))]
    words.append(str(container.get("image")))
    return bool(variables & _OPERATOR_VARIABLES) or any(
        sign in word for word in words for sign in _OPERATOR_WORDS
    )


def _certificates(container: Json) -> list[str]:
    """Return the argument that corresponds to a volume with the webhook's certificates."""
    folder = str(WebhookSettings().cert_dir)
    mounts = {mount.get("mountPath") for mount in container.get("volumeMounts") or ()}
    return [f"--webhook-cert-dir={folder}"] if folder in mounts else []


def _value(entry: Json, namespace: str) -> str:
    """Return the value of a variable; empty if it is set by the cluster."""
    source = entry.get("valueFrom") or {}
    if (source.get("fieldRef") or {}).get("fieldPath") == "metadata.namespace":
        return namespace
    return str(entry.get("value") or "")
