"""Deletions of primary resources that no watch has reported: a list lacks a known one.

A watch that expired (410, after a long interruption or when a CRD was edited) starts again with a
list, and events in between are lost. kopf delivers the objects of the list, and nothing for those
that are gone; client-go's reflector compares in the same place (`Replace` of its store). For owned
objects see `dependents.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from operator_runner.core.model import GVK, Json, ObjectRef, uid_of
from operator_runner.kube.api import continue_token
from operator_runner.kube.discovery import ApiResource


class MissedDeletions:
    """Compares each complete list of a kind with the resources known before."""

    def __init__(
        self,
        resources: Iterable[ApiResource],
        namespaces: Collection[str],
        known: Callable[[GVK], Iterable[tuple[ObjectRef, str]]],
        on_deleted: Callable[[ObjectRef, str], None],
    ) -> None:
        """`known` returns the resources of a kind with their uids.

        `on_deleted` is called with reference and uid of each one that a list lacks. Lists of other
        kinds and of other namespaces than these are ignored; empty means the whole cluster.
        """
        self._known = known
        self._on_deleted = on_deleted
        self._kinds = {
            resource.path(namespace): (resource.gvk, namespace if resource.namespaced else None)
            for resource in resources
            for namespace in namespaces or (None,)
        }
        self._listed: dict[str, set[str]] = {}
        """Uids on the pages so far, by the path of a list whose last page is to come."""

    def on_page(self, path: str, query: Mapping[str, str], content: Json) -> None:
        """Process one page of a list: the request's path and query, and the decoded response."""
        if path not in self._kinds:
            return
        if "continue" not in query:
            self._listed[path] = set()
        uids = self._listed.setdefault(path, set())
        # Aggregated APIs may leave out any of these.
        uids |= {uid_of(item) for item in content.get("items") or ()}
        if not continue_token(content):
            self._compare(path, self._listed.pop(path))

    def _compare(self, path: str, uids: Collection[str]) -> None:
        gvk, namespace = self._kinds[path]
        for ref, uid in list(self._known(gvk)):
            if uid not in uids and namespace in {None, ref.namespace}:
                self._on_deleted(ref, uid)
