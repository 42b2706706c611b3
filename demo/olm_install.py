"""Install and upgrade an operator with OLM as a user does, and read the state of its objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Phase:
    """The phase of a ClusterServiceVersion, with its `reason` and `message`."""

    name: str
    reason: str
    message: str

    def __str__(self) -> str:
        """`Installing (InstallWaiting): ...`."""
        return f"{self.name} ({self.reason}): {self.message}"


@dataclass(frozen=True, slots=True)
class Installation:
    """A package of a catalog in a namespace, upgraded by approval only.

    `kubectl` runs kubectl with arguments and standard input, and returns its output. `source` is
    the CatalogSource as `NAMESPACE/NAME`.
    """

    kubectl: Callable[[tuple[str, ...], str | None], str]
    namespace: str
    package: str
    channel: str
    source: str

    def subscribe(self, starting: str, environment: Mapping[str, str]) -> None:
        """Subscribe to the package from the version `starting` on, for all namespaces.

        `environment` is given to the operator's containers, beside what its bundle has.
        """
        source_namespace, _, source = self.source.partition("/")
        spec = {
            "name": self.package,
            "channel": self.channel,
            "source": source,
            "sourceNamespace": source_namespace,
            "startingCSV": starting,
            "installPlanApproval": "Manual",
            "config": {"env": [{"name": k, "value": v} for k, v in environment.items()]},
        }
        self._apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}},
            # Without a list of namespaces it is for all of them.
            self._object("operators.coreos.com/v1", "OperatorGroup", self.namespace, {}),
            self._object("operators.coreos.com/v1alpha1", "Subscription", self.package, spec),
        )

    def plan(self, version: str) -> str | None:
        """Return the InstallPlan of the ClusterServiceVersion that requires approval, if any.

        One that is approved before it has a phase is lost: OLM fails to write its phase, and
        creates another one, which is not approved.
        """
        for plan in self._list("installplans.operators.coreos.com"):
            phase = (plan.get("status") or {}).get("phase")
            if (
                phase == "RequiresApproval"
                and version in plan["spec"]["clusterServiceVersionNames"]
            ):
                return str(plan["metadata"]["name"])
        return None

    def approve(self, plan: str) -> None:
        """Let OLM carry out the InstallPlan."""
        patch = json.dumps({"spec": {"approved": True}})
        self._run("patch", "installplan", plan, "--type=merge", f"--patch={patch}")

    def phases(self) -> dict[str, Phase]:
        """Return the phase of each ClusterServiceVersion, by its name."""
        return {
            body["metadata"]["name"]: _phase(body.get("status") or {})
            for body in self._list("clusterserviceversions.operators.coreos.com")
        }

    def trouble(self) -> str:
        """Return the conditions of Subscription and InstallPlans, for an error message."""
        found = self._list("subscriptions.operators.coreos.com,installplans.operators.coreos.com")
        lines = []
        for body in found:
            status = body.get("status") or {}
            name = f"{body['kind']} {body['metadata']['name']}"
            lines.append(f"{name}: {status.get('phase') or status.get('state') or 'no state yet'}")
            lines += [
                f"  {condition['type']}: {condition['message']}"
                for condition in status.get("conditions", ())
                if condition.get("message") and condition["status"] == "True"
            ]
        return "\n".join(lines)

    def _object(self, api_version: str, kind: str, name: str, spec: Json) -> Json:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    def _apply(self, *items: Json) -> None:
        objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.kubectl(("apply", "--filename=-"), objects)

    def _list(self, kinds: str) -> list[Json]:
        found: list[Json] = json.loads(self._run("get", kinds, "--output=json"))["items"]
        return found

    def _run(self, *arguments: str) -> str:
        return self.kubectl((*arguments, f"--namespace={self.namespace}"), None)


def _phase(status: Json) -> Phase:
    return Phase(*(str(status.get(key) or "unknown") for key in ("phase", "reason", "message")))
