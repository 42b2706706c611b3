"""An owner gets into a body whatever form the client sends it in."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.kube import bodies, protobuf
from operator_runner.kube.ownership import Claim
from operator_runner.model import Json

REFERENCE = {"apiVersion": "g/v1", "kind": "K", "name": "n", "uid": "uid-1"}
CLAIM = Claim(reference=REFERENCE, annotations={"mine": "yes"})

# What kubectl 1.36 posts for `create configmap seen --from-literal=a=b`.
CREATED = base64.b64decode(
    "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEh4KFAoEc2VlbhIAGgAiACoAMgA4AEIAEgYKAWESAWIaACIA"
)
# A ConfigMap as the API server gives it, with an owner reference and managedFields.
READ = base64.b64decode(
    "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEtsCCtACCgNjc2ESABoHZGVmYXVsdCIAKiQwNmQyZWQzOC00MzY1LTQ1YWUt"
    "YWFjYy0xNDAwYzM1NTQwNzQyAzczNDgAQggIlMeE2AYQAGo8CglDb25maWdNYXAaBW93bmVyIiQ5MjcwYjE2MS04"
    "ZmU3LTRhMDYtOTExYS01YTE3MWY4ZGFlYzgqAnYxigHFAQoZa3ViZWN0bC1jbGllbnQtc2lkZS1hcHBseRIGVXBk"
    "YXRlGgJ2MSIICJTHhNgGEAAyCEZpZWxkc1YxOoUBCoIBeyJmOmRhdGEiOnsiLiI6e30sImY6YSI6e319LCJmOm1l"
    "dGFkYXRhIjp7ImY6b3duZXJSZWZlcmVuY2VzIjp7Ii4iOnt9LCJrOntcInVpZFwiOlwiOTI3MGIxNjEtOGZlNy00"
    "YTA2LTkxMWEtNWExNzFmOGRhZWM4XCJ9Ijp7fX19fUIAEgYKAWESATEaACIA"
)
OWNER_OF_READ = "9270b161-8fe7-4a06-911a-5a171f8daec8"


def asks(wanted: Claim) -> Any:
    """Return a decision that always comes out as `wanted`."""
    return lambda _: wanted


def added(kind: str, body: str, wanted: Claim = CLAIM) -> Json:
    """Return the decoded body after the claim was added."""
    content: Json = json.loads(bodies.add_owner(kind, body.encode(), asks(wanted)))
    return content


@pytest.mark.parametrize("kind", ["", "application/json", "application/apply-patch+yaml"])
def test_json(kind: str) -> None:
    """Reference and annotation join what is there; all else stays."""
    old = {"uid": "other"}
    body = {
        "kind": "K",
        "metadata": {"ownerReferences": [old], "annotations": {"theirs": "kept"}},
        "data": {"pi": 3.14, "big": 2**63 + 1, "text": "ü\u2028"},
    }
    expected = {
        **body,
        "metadata": {
            "ownerReferences": [old, REFERENCE],
            "annotations": {"theirs": "kept", "mine": "yes"},
        },
    }
    assert added(kind, json.dumps(body)) == expected


@pytest.mark.parametrize("metadata", ["{}", "null", '{"ownerReferences": null}'])
def test_empty_metadata(metadata: str) -> None:
    """Whatever a client leaves out is made."""
    body = f'{{"metadata": {metadata}}}'
    expected = {"ownerReferences": [REFERENCE], "annotations": {"mine": "yes"}}
    assert added("application/json", body)["metadata"] == expected


@pytest.mark.parametrize("kind", ["application/yaml", "application/apply-patch+yaml"])
def test_yaml(kind: str) -> None:
    """YAML keeps its types: a date is text for the API server, a port a number."""
    body = "metadata: {name: x}\ndata:\n  day: 2020-01-01\n  port: 80\n  flag: true\n"
    expected = {
        "metadata": {
            "name": "x",
            "ownerReferences": [REFERENCE],
            "annotations": {"mine": "yes"},
        },
        "data": {"day": "2020-01-01", "port": 80, "flag": True},
    }
    assert added(kind, body) == expected


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{bad"),
        ("application/json", b"[]"),
        ("application/json", b'{"metadata": "text"}'),
        ("application/json", b'{"metadata": {"ownerReferences": 7}}'),
        ("application/json", b'{"metadata": {"annotations": ["x"]}}'),
        ("application/json", b"\xff\xfe\x00"),
        ("application/yaml", b"a: [1"),
        ("application/yaml", b"x: !!binary aGk="),
        ("application/xml", b"<a/>"),
        (bodies.PROTOBUF, b"nonsense"),
        (bodies.PROTOBUF, CREATED[:-20]),
    ],
)
def test_unreadable(kind: str, body: bytes) -> None:
    """What cannot be read reaches the API server as it is, for its error message."""
    assert bodies.add_owner(kind, body, asks(CLAIM)) == body


@pytest.mark.parametrize(
    ("kind", "body"), [("application/json", b'{ "kind" : "K" }'), (bodies.PROTOBUF, CREATED)]
)
def test_nothing_to_add(kind: str, body: bytes) -> None:
    """A body that lacks nothing is not even formatted anew."""
    assert bodies.add_owner(kind, body, asks(Claim())) == body


def test_protobuf_is_understood() -> None:
    """Kind, name, owners and annotations are read from the API server's own encoding."""
    content = protobuf.view(READ)
    assert (content["apiVersion"], content["kind"]) == ("v1", "ConfigMap")
    assert content["metadata"]["name"] == "csa"
    assert content["metadata"]["ownerReferences"] == [{"uid": OWNER_OF_READ}]


@pytest.mark.parametrize(("body", "owners"), [(CREATED, []), (READ, [OWNER_OF_READ])])
def test_protobuf(body: bytes, owners: list[str]) -> None:
    """Reference and annotation can be read back, and everything else stays as it was."""
    changed = bodies.add_owner(bodies.PROTOBUF, body, asks(CLAIM))
    before, after = protobuf.view(body), protobuf.view(changed)
    uids = [reference["uid"] for reference in after["metadata"].pop("ownerReferences")]
    assert uids == [*owners, "uid-1"]
    assert after["metadata"].pop("annotations") == {"mine": "yes"}
    del before["metadata"]["ownerReferences"], before["metadata"]["annotations"]
    assert after == before
    assert changed.endswith(body[-12:])


@given(st.binary(max_size=80), st.integers(0, len(READ)))
def test_broken_protobuf(noise: bytes, at: int) -> None:
    """No body makes the proxy fail: broken ones are passed on or get their owner."""
    bodies.add_owner(bodies.PROTOBUF, READ[:at] + noise + READ[at:], asks(CLAIM))


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("application/json", b'{"dryRun": ["All"]}', True),
        ("application/json", b'{"propagationPolicy": "Foreground"}', False),
        ("application/json", b"", False),
        # DeleteOptions{dryRun: [All]} and an empty one.
        (bodies.PROTOBUF, b"k8s\x00\x12\x05\x2a\x03All", True),
        (bodies.PROTOBUF, b"k8s\x00\x12\x00", False),
        (bodies.PROTOBUF, b"", False),
    ],
)
def test_dry_run(kind: str, body: bytes, expected: bool) -> None:
    """A deletion that only asks what would happen is told from a real one."""
    assert bodies.is_dry_run(kind, body) is expected
