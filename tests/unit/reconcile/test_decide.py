"""Which step is next for a resource."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.core.model import GVK, Finalizer, Json, RunContent, Watch
from operator_runner.reconcile.decide import Action, AddMetadata, Ignore, Run, decide

GVK_FOO = GVK("example.com", "v1", "Foo")
PLAIN = Watch(GVK_FOO, RunContent(role=Path("/roles/foo")))
HELD = Watch(
    GVK_FOO, RunContent(role=Path("/roles/foo")), finalizer=Finalizer("example.com/f", None)
)


def resource(*finalizers: str, deleting: bool = False) -> Json:
    metadata: Json = {"name": "a", "finalizers": list(finalizers)}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata}


@pytest.mark.parametrize(
    ("body", "watch", "selected", "expected"),
    [
        (resource(), PLAIN, True, Run(cleanup=False)),
        (resource(), PLAIN, False, Ignore("Resource does not match selector or when")),
        (resource("other"), PLAIN, True, Run(cleanup=False)),
        (resource("other", deleting=True), PLAIN, True, Ignore("Resource is terminated")),
        (resource(), HELD, True, AddMetadata("example.com/f")),
        (resource(), HELD, False, Ignore("Resource does not match selector or when")),
        (resource("example.com/f"), HELD, True, Run(cleanup=False)),
        (resource("example.com/f", deleting=True), HELD, True, Run(cleanup=True)),
        (resource("example.com/f", deleting=True), HELD, False, Run(cleanup=True)),
        (resource("other", deleting=True), HELD, True, Ignore("Resource is terminated")),
    ],
)
def test_the_next_step_depends_on_finalizers_and_deletion(
    body: Json, watch: Watch, *, selected: bool, expected: Action
) -> None:
    """The step follows from finalizers, deletion and selection alone."""
    assert decide(body, watch, selected=selected) == expected
