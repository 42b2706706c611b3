"""CRDs of OLM, and objects as it creates them, for tests that do not run OLM."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster.binaries import find_olm
from tests.support.kubectl import Json, Kubectl

CONDITION = "operatorconditions.operators.coreos.com"


def crd(plural: str) -> Path:
    """Return OLM's own manifest of a CRD; OLM is built where it was not before."""
    crds = find_olm(os.environ, Console(stderr=True)) / "crds"
    (found,) = crds.glob(f"*-{plural}.crd.yaml")
    return found


def operator_condition(name: str, **spec: object) -> Json:
    """Return an OperatorCondition as OLM makes it for a ClusterServiceVersion."""
    return {
        "apiVersion": "operators.coreos.com/v2",
        "kind": "OperatorCondition",
        "metadata": {"name": name},
        "spec": {"deployments": ["manager"], "serviceAccounts": ["default"], **spec},
    }


def grant_condition(kubectl: Kubectl, name: str) -> None:
    """Grant the account `default` what OLM grants the accounts of an operator."""
    verbs = "--verb=get,update,patch"
    kubectl("create", "role", name, verbs, f"--resource={CONDITION}", f"--resource-name={name}")
    account = f"--serviceaccount={kubectl.namespace}:default"
    kubectl("create", "rolebinding", name, f"--role={name}", account)
    user = f"system:serviceaccount:{kubectl.namespace}:default"
    kubectl.wait_for_permission(user, "update", f"{CONDITION}/{name}")


def condition_of(kubectl: Kubectl, name: str, type_: str = "Upgradeable") -> Json:
    """Return a condition that the operator wrote, empty if it has not yet."""
    found = kubectl.get(CONDITION, name) or {}
    conditions = found.get("spec", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == type_), {})
