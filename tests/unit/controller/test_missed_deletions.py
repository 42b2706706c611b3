"""Deletions that only a list shows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.watch import MissedDeletions

WIDGET = ApiResource(GVK("example.com", "v1", "Widget"), "widgets", namespaced=True)
NODE = ApiResource(GVK("", "v1", "Node"), "nodes", namespaced=False)


def page(*uids: str, token: str = "") -> Json:
    items = [{"metadata": {"uid": uid}} for uid in uids]
    return {"metadata": {"resourceVersion": "5", "continue": token}, "items": items}


def watcher(
    known: Sequence[ObjectRef], namespaces: Sequence[str] = ()
) -> tuple[MissedDeletions, list[str]]:
    """Return it with the list of uids that are found missing; each uid is a name."""
    found: list[str] = []
    missed = MissedDeletions(
        [WIDGET, NODE],
        namespaces,
        lambda gvk: [(ref, ref.name) for ref in known if ref.gvk == gvk],
        lambda _, uid: found.append(uid),
    )
    return missed, found


def widgets(*names: str) -> list[ObjectRef]:
    return [ObjectRef(WIDGET.gvk, "n", name) for name in names]


def test_missing_resources_are_found_after_the_last_page() -> None:
    """It is missing if it is on none of them."""
    missed, found = watcher(widgets("a", "b", "c"))
    missed.on_page(WIDGET.path(), {"limit": "20"}, page("a", token="next"))
    assert found == []
    missed.on_page(WIDGET.path(), {"limit": "20", "continue": "next"}, page("c"))
    assert found == ["b"]


def test_a_list_that_was_broken_off_counts_for_nothing() -> None:
    """The next one has no continue token."""
    missed, found = watcher(widgets("a"))
    missed.on_page(WIDGET.path(), {}, page("a", token="next"))
    missed.on_page(WIDGET.path(), {}, page())
    assert found == ["a"]


def test_a_list_of_one_namespace_does_not_concern_others() -> None:
    """Each namespace has a list of its own."""
    other = ObjectRef(WIDGET.gvk, "m", "b")
    missed, found = watcher([*widgets("a"), other], ["n", "m"])
    missed.on_page(WIDGET.path("n"), {}, page())
    assert found == ["a"]
    missed.on_page(WIDGET.path("m"), {}, page())
    assert found == ["a", "b"]


def test_a_cluster_scoped_kind_has_one_list_with_any_namespaces() -> None:
    """Its objects have no namespace."""
    missed, found = watcher([ObjectRef(NODE.gvk, "", "a")], ["n", "m"])
    missed.on_page(NODE.path(), {}, page())
    assert found == ["a"]


@pytest.mark.parametrize("content", [{}, {"items": None}, {"items": [{"metadata": {}}]}])
def test_lists_of_aggregated_apis_may_lack_fields(content: Json) -> None:
    """What they do not list is missing."""
    missed, found = watcher(widgets("a"))
    missed.on_page(WIDGET.path(), {}, content)
    assert found == ["a"]


@pytest.mark.parametrize("path", ["/api", "/apis/example.com/v1", "/apis/example.com/v1/gadgets"])
def test_other_responses_are_ignored(path: str) -> None:
    """Discovery documents, and lists of kinds that are not watched."""
    missed, found = watcher(widgets("a"))
    missed.on_page(path, {}, {})
    assert found == []
