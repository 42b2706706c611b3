"""Decide which resources this replica may run: with shards, with leader election, with neither."""

from __future__ import annotations

from collections.abc import Callable, Container

from operator_runner.controller.sharding import Sharding
from operator_runner.core.fencing import LeaseTerm
from operator_runner.core.model import GVK, ObjectRef
from operator_runner.kube.leader_election import LeaderElector


class ShardGate:
    """Decides by the uid of a resource; without shards this replica may run all of them."""

    def __init__(
        self,
        sharding: Sharding | None,
        elector: LeaderElector | None,
        kinds: Container[GVK],
        uid: Callable[[ObjectRef], str],
    ) -> None:
        """`kinds` are those of primary resources; `uid` returns that of a known one, else ""."""
        self._sharding = sharding
        self._elector = elector
        self._kinds = kinds
        self._uid = uid

    def term_of(self, ref: ObjectRef) -> LeaseTerm | None:
        """Return the term that covers a resource, or the trigger object of an Event."""
        if self._sharding is None or ref.gvk in self._kinds:
            return self.term_of_uid(self._uid(ref))
        return self._sharding.term

    def term_of_uid(self, uid: str) -> LeaseTerm | None:
        """Return the term that covers the resource with a uid."""
        if self._sharding is None:
            return None if self._elector is None else self._elector.term
        return self._sharding.term_of(uid)

    def may_reconcile(self, ref: ObjectRef) -> bool:
        """Return whether this replica reconciles a resource; all do once it is deleted.

        Each replica then drops its state.
        """
        uid = "" if self._sharding is None else self._uid(ref)
        return self._sharding is None or not uid or self._sharding.is_active(uid)

    def claim(self, ref: ObjectRef) -> bool:
        """Return whether the current task may reconcile a resource; always once it is deleted."""
        uid = "" if self._sharding is None else self._uid(ref)
        return self._sharding is None or not uid or self._sharding.claim(uid)

    def reports_on(self, uid: str) -> bool:
        """Return whether this replica emits the Events and counts the metrics of an object."""
        return self._sharding is None or self._sharding.is_active(uid)
