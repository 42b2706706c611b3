"""What the responses to a run's requests make its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from operator_runner.core.async_tasks import WorkerThread
from operator_runner.core.model import Json, RunContent, Watch
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.proxy.ownership import Owner
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.response_tracker import ResponseTracker, TrackedRequest
from operator_runner.proxy.run_tokens import Grant


class Ignored:
    """An observer of nothing."""

    def on_dependent(self, *_: Any, **__: Any) -> None:
        """Ignore a dependent."""

    def on_write(self, *_: Any) -> None:
        """Ignore a write."""

    def newest(self, *_: Any) -> None:
        """Know nothing."""

    def changed(self, *_: Any) -> None:
        """Ignore changed fields."""

    def on_own_write(self, *_: Any) -> None:
        """Ignore a write of the owner."""


REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
SHARD = {"apiVersion": "aggregated.example.com/v1", "kind": "Shard"}


@pytest.mark.parametrize(
    ("path", "response", "expected"),
    [
        ("/api/v1/namespaces/team/secrets", {"metadata": {"name": "s", "uid": "uid-s"}}, {"uid-s"}),
        (
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {**REVIEW, "metadata": {"uid": "uid-of-another"}},
            set(),
        ),
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {**REVIEW, "kind": "SubjectAccessReview", "metadata": {}},
            set(),
        ),
        ("/apis/aggregated.example.com/v1/shards", {**SHARD, "metadata": {"name": "a"}}, set()),
        (
            "/apis/aggregated.example.com/v1/shards",
            {**SHARD, "metadata": {"name": "a", "uid": None}},
            set(),
        ),
        ("/apis/aggregated.example.com/v1/shards", SHARD, set()),
    ],
    ids=["object", "review with uid", "review", "without uid", "null", "without metadata"],
)
async def test_created_objects_belong_to_the_run(
    owner: Owner, path: str, response: Json, expected: set[str]
) -> None:
    """Not a review, whose uid could only be one that was sent, nor an object without a uid."""
    grant = Grant(owner, Watch(owner.ref.gvk, RunContent(role=Path("/roles/any"))), "run-1")
    info = RequestInfo.parse(path)
    assert info is not None
    tracker = ResponseTracker(Ignored(), Discovery(cast("Api", None)), WorkerThread())
    body = {"apiVersion": "v1", "kind": "Secret", **response}

    await tracker.track(
        TrackedRequest(grant, "POST", info),
        "application/json",
        json.dumps(body).encode(),
        created=True,
    )

    assert grant.owned_uids == expected
