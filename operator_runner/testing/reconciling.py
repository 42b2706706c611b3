"""The fixture `reconcile`: one reconcile of the operator, and its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from operator_runner.testing.outcome import Json, Outcome, outcome_of
from operator_runner.testing.process import OperatorProcess


class Reconcile:
    """Reconciles resources in the namespace of one test.

    Objects are dicts as in manifests. Those without `metadata.namespace` are in the namespace of
    the test. Every method raises OperatorProcessError, for example if the API server refuses an
    object.
    """

    def __init__(self, process: OperatorProcess, namespace: str) -> None:
        """Use `process`; `namespace` exists."""
        self.namespace = namespace
        self.outcomes: list[Outcome] = []
        """All outcomes of the test, in order."""
        self._process = process
        self._applied: dict[tuple[str, str, str, str], Json] = {}

    def __call__(
        self, resource: Mapping[str, Any], objects: Iterable[Mapping[str, Any]] = ()
    ) -> Outcome:
        """Apply `objects` and the resource, with their status, and reconcile the resource once.

        The second call for the same resource is an edit, or a repetition if nothing differs.
        """
        given = [dict(each) for each in objects]
        for each in [*given, dict(resource)]:
            self._applied[_key(each)] = each
        return self._outcome("reconcile", resource, objects=given)

    def delete(self, resource: Mapping[str, Any]) -> Outcome:
        """Delete a resource that was reconciled, and reconcile its deletion: run its finalizer.

        The garbage collector deletes the objects that it owns, but at any time after that.
        """
        return self._outcome("delete", resource)

    def remove_all(self) -> None:
        """Delete everything that was applied, without waiting for finalizers."""
        objects = list(self._applied.values())
        self._process.call("remove", objects=objects, namespace=self.namespace)

    def _outcome(self, method: str, resource: Mapping[str, Any], **arguments: Any) -> Outcome:
        body, begin = dict(resource), self._process.log_size
        answer = self._process.call(method, resource=body, namespace=self.namespace, **arguments)
        outcome = outcome_of(
            answer, body, project=self._process.project, output=self._process.log(begin)
        )
        self.outcomes.append(outcome)
        return outcome


def _key(body: Mapping[str, Any]) -> tuple[str, str, str, str]:
    metadata = body.get("metadata") or {}
    names = (metadata.get("namespace"), metadata.get("name"))
    return str(body.get("apiVersion")), str(body.get("kind")), str(names[0]), str(names[1])
