"""The command `health`: health checks of a project's kinds for GitOps tools.

Argo CD evaluates Lua over the object (its docs/operator-manual/health.md), Flux CEL (its
Kustomization, `healthCheckExprs`). Both see a resource before its first run, during runs of an
edit, and while it is suspended or no longer selected.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from operator_runner.config.watches import load
from operator_runner.core.model import Json, Watch
from operator_runner.tools.yaml_io import dump_in_order

_LUA = """\
local hs = {status = "Progressing", message = "Waiting for the operator"}
if type(obj.status) ~= "table" or type(obj.status.conditions) ~= "table" then
  return hs
end
local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  local seen = condition.observedGeneration or obj.status.observedGeneration
  local generation = obj.metadata.generation
  if seen == nil or generation == nil or seen == generation then
    conditions[condition.type] = condition
  end
end
local function set(type, value, health)
  local condition = conditions[type]
  if condition == nil or (condition.status ~= value and condition.reason ~= value) then
    return false
  end
  hs.status = health
  if condition.message ~= nil and condition.message ~= "" then
    hs.message = condition.message
  end
  return true
end
if set("Suspended", "True", "Suspended") or set("Running", "Deselected", "Healthy")
  or set("Failure", "True", "Degraded") or set("Stalled", "True", "Degraded")
  or set("READY", "True", "Healthy") then
  return hs
end
set("READY", "False", "Progressing")
set("Running", "True", "Progressing")
set("Reconciling", "True", "Progressing")
return hs
"""
_CURRENT_GENERATION = "(!has(c.observedGeneration) || c.observedGeneration == metadata.generation)"


def argocd(watches: Sequence[Watch]) -> Json:
    """Return the entries of the ConfigMap argocd-cm, by key."""
    entries = {
        f"resource.customizations.health.{watch.gvk.group}_{watch.gvk.kind}": _LUA.replace(
            "READY", _ready_type(watch)
        )
        for watch in _with_conditions(watches)
    }
    return {"data": entries}


def flux(watches: Sequence[Watch]) -> Json:
    """Return what is to be added to the spec of a Kustomization."""
    return {"healthCheckExprs": [_expressions(watch) for watch in _with_conditions(watches)]}


def _with_conditions(watches: Sequence[Watch]) -> Sequence[Watch]:
    return [watch for watch in watches if watch.manage_status]


def _ready_type(watch: Watch) -> str:
    return "Ready" if watch.kstatus else "Successful"


def _expressions(watch: Watch) -> Json:
    gvk, failed = watch.gvk, "Stalled" if watch.kstatus else "Failure"
    current = _exists(f"c.type == '{_ready_type(watch)}' && c.status == 'True'")
    deselected = _exists("c.type == 'Running' && c.reason == 'Deselected'")
    return {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "failed": _exists(f"c.type == '{failed}' && c.status == 'True'"),
        "current": f"{current} || {deselected}",
    }


def _exists(condition: str) -> str:
    found = f"status.conditions.exists(c, {condition} && {_CURRENT_GENERATION})"
    return f"(has(status.conditions) && {found})"


@click.group("health")
def health() -> None:
    """Print health checks for Argo CD or Flux."""


_watches_file = click.option(
    "--watches-file",
    default="./watches.yaml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Watches whose kinds have health checks.",
)


@health.command("argocd")
@_watches_file
def print_argocd(watches_file: Path) -> None:
    """Print a patch of the ConfigMap argocd-cm with Lua for each kind."""
    click.echo(dump_in_order(argocd(load(watches_file, os.environ).watches)), nl=False)


@health.command("flux")
@_watches_file
def print_flux(watches_file: Path) -> None:
    """Print healthCheckExprs for the spec of a Kustomization, with CEL for each kind."""
    click.echo(dump_in_order(flux(load(watches_file, os.environ).watches)), nl=False)
