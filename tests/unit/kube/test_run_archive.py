"""Values of the ConfigMaps that keep runs: others could have written them."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from operator_runner.kube.run_archive import RUNS, decode, encode, unpack

UID = "5cf0d8a4-6b07-4c3c-9f0e-2a8f4f1f6f10"
RESOURCE = {"apiVersion": "example.com/v1", "kind": "Page", "name": "home", "uid": UID}
RUN: dict[str, Any] = {
    "id": "1",
    "resource": RESOURCE,
    "outcome": "succeeded",
    "started": "2026-01-01T12:00:00Z",
}


def test_written_runs_are_read() -> None:
    """As they were, and as a ConfigMap has them."""
    value = encode([RUN, {**RUN, "id": "2"}])
    assert value is not None
    text = base64.b64encode(value).decode()
    assert decode(unpack(text), UID) == [RUN, {**RUN, "id": "2"}]
    assert decode(unpack(text), "another uid") == []


@pytest.mark.parametrize(
    "forged",
    [
        {},
        [1],
        [{**RUN, "changes": [1]}],
        [{**RUN, "tasks": 1}],
        [{**RUN, "resource": {**RESOURCE, "name": ""}}],
        [RUN, {**RUN, "resource": {**RESOURCE, "name": "other"}}],
    ],
)
def test_runs_of_another_shape_are_ignored(forged: object) -> None:
    """They would end the operator where it writes them again."""
    assert decode(json.dumps(forged).encode(), UID) == []


def test_values_log_and_older_runs_are_dropped() -> None:
    """The operator would not have written them."""
    change = {"object": RESOURCE, "path": "data.text", "before": "a", "after": "b"}
    forged = [{**RUN, "id": str(number), "log": ["x"], "changes": [change]} for number in range(9)]
    runs = decode(json.dumps(forged).encode(), UID)
    assert len(runs) == RUNS
    assert "log" not in runs[0]
    assert runs[0]["changes"] == [{"object": RESOURCE, "path": "data.text"}]


def test_a_small_value_does_not_become_a_large_one() -> None:
    """Compressed zeros are a thousand times smaller."""
    text = base64.b64encode(zlib.compress(b"0" * 10**7)).decode()
    assert len(unpack(text)) == 256 * 1024
    assert unpack("no base64") == b""
