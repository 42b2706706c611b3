"""Owners are added to bodies of all formats."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.model import Json
from operator_runner.proxy import bodies, protobuf
from operator_runner.proxy.bodies import DecodingError, decode_json, decode_yaml
from operator_runner.proxy.ownership import MetadataPatch

REFERENCE = {"apiVersion": "g/v1", "kind": "K", "name": "n", "uid": "uid-1"}
CLAIM = MetadataPatch((REFERENCE,), annotations={"mine": "yes"})

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


def decision_for(patch: MetadataPatch) -> Any:
    """Return a decision that results in `patch`, in addition to the owners of a body."""

    def decide(body: Json) -> MetadataPatch:
        metadata = body.get("metadata")
        given = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
        if patch.references is None or not isinstance(given, list):
            return patch
        return replace(patch, references=(*given, *patch.references))

    return decide


def added(kind: str, body: str, patch: MetadataPatch = CLAIM) -> Json:
    """Return the decoded body after the claim was added."""
    content: Json = json.loads(bodies.add_owner(kind, body.encode(), decision_for(patch)))
    return content


@pytest.mark.parametrize("kind", ["", "application/json", "application/apply-patch+yaml"])
def test_owner_and_annotation_are_added_to_json(kind: str) -> None:
    """Reference and annotation are added to existing ones; other fields are kept."""
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
def test_missing_metadata_is_created(metadata: str) -> None:
    """Fields that a client omits are created."""
    body = f'{{"metadata": {metadata}}}'
    expected = {"ownerReferences": [REFERENCE], "annotations": {"mine": "yes"}}
    assert added("application/json", body)["metadata"] == expected


@pytest.mark.parametrize("kind", ["application/yaml", "application/apply-patch+yaml"])
def test_yaml_scalars_keep_their_types(kind: str) -> None:
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
        ("application/json", b'{"metadata": {"annotations": ["x"]}}'),
        ("application/json", b"\xff\xfe\x00"),
        ("application/xml", b"<a/>"),
    ],
)
def test_unreadable_bodies_are_passed_on(kind: str, body: bytes) -> None:
    """Invalid bodies are passed on unchanged, for the error message of the API server."""
    assert bodies.add_owner(kind, body, decision_for(CLAIM)) == body


@pytest.mark.parametrize(
    ("kind", "body"), [("application/json", b'{ "kind" : "K" }'), (bodies.PROTOBUF, CREATED)]
)
def test_a_complete_body_is_unchanged(kind: str, body: bytes) -> None:
    """A complete body is passed on byte for byte."""
    assert bodies.add_owner(kind, body, decision_for(MetadataPatch())) == body


def test_metadata_is_read_from_protobuf() -> None:
    """Kind, name, owners and annotations are read from the API server's own encoding."""
    content = protobuf.view(READ)
    assert (content["apiVersion"], content["kind"]) == ("v1", "ConfigMap")
    assert content["metadata"]["name"] == "csa"
    assert content["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": OWNER_OF_READ}
    ]


def test_protobuf_without_owners_is_a_body_without_the_field() -> None:
    """An object keeps its owners without the field, and an empty list is not sent."""
    assert "ownerReferences" not in protobuf.view(CREATED)["metadata"]
    bare = protobuf.add(READ, MetadataPatch(references=()))
    assert "ownerReferences" not in protobuf.view(bare)["metadata"]


@pytest.mark.parametrize(("body", "owners"), [(CREATED, []), (READ, [OWNER_OF_READ])])
def test_owner_and_annotation_are_added_to_protobuf(body: bytes, owners: list[str]) -> None:
    """Reference and annotation can be read back, and everything else stays as it was."""
    changed = bodies.add_owner(bodies.PROTOBUF, body, decision_for(CLAIM))
    before, after = protobuf.view(body), protobuf.view(changed)
    uids = [reference["uid"] for reference in after["metadata"].pop("ownerReferences")]
    assert uids == [*owners, "uid-1"]
    assert after["metadata"].pop("annotations") == {"mine": "yes"}
    before["metadata"].pop("ownerReferences", None)
    del before["metadata"]["annotations"]
    assert after == before
    assert changed.endswith(body[-12:])


@given(st.binary(max_size=80), st.integers(0, len(READ)))
def test_broken_protobuf_is_refused_or_owned(noise: bytes, at: int) -> None:
    """No body makes the proxy fail: broken ones are refused or get their owner."""
    body = READ[:at] + noise + READ[at:]
    try:
        changed = bodies.add_owner(bodies.PROTOBUF, body, decision_for(CLAIM))
    except DecodingError:
        return
    owners = protobuf.view(changed)["metadata"]["ownerReferences"]
    assert "uid-1" in [owner.get("uid") for owner in owners]


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
def test_dry_run_deletions_are_recognized(kind: str, body: bytes, expected: bool) -> None:
    """A dry run of a deletion is distinguished from a real one."""
    assert bodies.is_dry_run(kind, body) is expected


LAUGHS = b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 8)
)
"""Some 300 bytes whose aliases stand for millions of values."""
TYPE_META, NAMED = b"\x0a\x00", b"\x0a\x03\x0a\x01x"


def envelope(*fields: bytes) -> bytes:
    """Return a protobuf body of these fields."""
    return b"k8s\x00" + b"".join(fields)


def raw(content: bytes) -> bytes:
    """Return the field of the envelope that holds an object of less than 128 bytes."""
    return b"\x12" + bytes([len(content)]) + content


@pytest.mark.parametrize(
    ("kind", "body", "problem"),
    [
        ("application/json", b"[" * 100_000, "nested too deep"),
        ("application/json", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deep"),
        ("application/json", b'{"data": ' + b"7" * 5000 + b"}", "number out of range"),
        ("application/json", b'{"data": 1e999}', "written as JSON"),
        ("application/json", b'{"data": NaN}', "NaN is not a valid JSON number"),
        ("application/yaml", LAUGHS, "aliases"),
        ("application/apply-patch+yaml", LAUGHS, "aliases"),
        ("application/yaml", b"[" * 100_000 + b"]" * 100_000, "nested"),
        ("application/apply-patch+yaml", b"- " * 100_000, "nested deeper than 500"),
        ("application/yaml", b"[" + b"a," * 200_000 + b"]", "more than 200000 parts"),
        ("application/yaml", b"a: [1", "invalid YAML"),
        ("application/yaml", b"a: \x00", "invalid YAML"),
        ("application/yaml", b"x: !!binary aGk=", "the YAML tag"),
        ("application/yaml", b"x: !!python/tuple [1]", "the YAML tag"),
        ("application/yaml", b"{<<: {a: 1}}", "merge keys"),
        ("application/yaml", b"? [1]\n: 2", "YAML key"),
        ("application/yaml", b"a: 1\n---\nb: 2", "several documents"),
        ("application/yaml", b"a: .inf", "not a valid JSON number"),
        (bodies.PROTOBUF, b"nonsense", "invalid protobuf"),
        (bodies.PROTOBUF, CREATED[:-20], "truncated"),
        (bodies.PROTOBUF, envelope(b"\x18\x01" * 200_001), "more than 200000 fields"),
        (bodies.PROTOBUF, envelope(b"\x12\xff\xff\xff\xff\x7f"), "truncated"),
        (bodies.PROTOBUF, envelope(b"\x13\x14"), "wire type"),
        (bodies.PROTOBUF, envelope(raw(NAMED), raw(NAMED)), "is repeated"),
        (bodies.PROTOBUF, envelope(raw(NAMED + NAMED)), "is repeated"),
        (bodies.PROTOBUF, envelope(TYPE_META, TYPE_META), "is repeated"),
    ],
)
def test_bodies_beyond_the_bounds_are_refused(kind: str, body: bytes, problem: str) -> None:
    """Bodies that the API server might parse, but the proxy does not, are rejected."""
    with pytest.raises(DecodingError, match=problem):
        bodies.add_owner(kind, body, decision_for(CLAIM))


def test_go_drops_the_upper_bits_of_a_field_number() -> None:
    """A field whose number has more than 32 bits is the one that Go takes it for."""
    disguised = b"\x8a\x80\x80\x80\x80\x01" + b"\x03\x0a\x01x"  # 1 + 2**32, then metadata {name: x}
    assert protobuf.view(envelope(raw(disguised)))["metadata"]["name"] == "x"


def test_invalid_utf_8_is_read_as_go_reads_it() -> None:
    """An object with invalid UTF-8 still gets its owner."""
    content = json.loads(
        bodies.add_owner("application/json", b'{"data": {"a": "\xff"}}', decision_for(CLAIM))
    )
    assert content["data"] == {"a": "\ufffd"}
    assert content["metadata"]["ownerReferences"] == [REFERENCE]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(text, True) for text in ("true", "Yes", "on", "y")],
        *[(text, False) for text in ("FALSE", "no", "Off", "n")],
        *[(text, None) for text in ("~", "null", "")],
        *[("0", 0), ("-17", -17), ("1_000", 1000), ("0x1F", 31), ("0b101", 5), ("017", 15)],
        *[("0o17", 15), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("-2.5e-1", -0.25)],
        *[(text, text) for text in ("1:30", "2020-01-01", "1.2.3", "0x", "0b_", "1e999", "a b")],
        *[("'80'", "80"), ('"true"', "true"), ("!!str 80", "80"), ("!!int 80", 80), ("! 80", "80")],
        *[
            ("{80: a, true: b, ~: c}", {"80": "a", "true": "b", "null": "c"}),
            ("[]", []),
            ("{}", {}),
        ],
        *[("&a {b: &c [1]}", {"b": [1]}), ("|\n  a\n  b\n", "a\nb\n"), ("9" * 400, "9" * 400)],
    ],
)
def test_yaml_scalars_match_the_api_server(text: str, value: Any) -> None:
    """Scalars have the types that the API server's own YAML gives them."""
    assert decode_yaml(f"k: {text}".encode()) == {"k": value}


def test_json_and_yaml_decoders_agree() -> None:
    """Both decoders have the same result."""
    body = json.dumps({"a": [1, -2.5, None, True, "x", {"b": {}}], "c": "1", "d": []}).encode()
    assert decode_yaml(body) == decode_json(body)


def test_sexagesimal_numbers_and_equal_hashes_cost_no_time() -> None:
    """Numbers that Python adds up or hashes slowly are text and keys in the form of text."""
    started = time.process_time()
    decode_yaml(b"a: 1" + b":1" * 100_000)
    decode_yaml(b"".join(b"%d: 1\n" % (n * (2**61 - 1)) for n in range(20_000)))
    assert time.process_time() - started < 10


def test_a_copy_in_protobuf_has_another_name_and_no_identity() -> None:
    """As the API server requires it for a creation; all else is kept."""
    before = protobuf.view(READ)
    after = protobuf.view(protobuf.copy(READ, "other", "elsewhere"))
    assert after == {
        **before,
        "metadata": {
            "name": "other",
            "labels": before["metadata"]["labels"],
            "annotations": before["metadata"]["annotations"],
            "ownerReferences": before["metadata"]["ownerReferences"],
        },
    }
    assert b"elsewhere" in protobuf.copy(READ, "other", "elsewhere")
    assert b"default" not in protobuf.copy(READ, "other", "")


def test_a_resource_version_in_protobuf_is_replaced() -> None:
    """And nothing else is changed."""
    changed = protobuf.with_resource_version(READ, "99")
    assert protobuf.view(changed)["metadata"]["resourceVersion"] == "99"
    version = protobuf.view(READ)["metadata"]["resourceVersion"]
    again = protobuf.view(protobuf.with_resource_version(changed, version))
    assert again == protobuf.view(READ)
