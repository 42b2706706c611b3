"""Errors of the API server that repeat the whole object."""

from __future__ import annotations

import json

from operator_runner.ansible.api_errors import without_quoted_objects

REASON = (
    "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
)


def error_of(body: object) -> str:
    """Return the answer of the API server, which quotes the object twice, as a module has it."""
    quoted = json.dumps(json.dumps(body))
    message = f' "" is invalid: patch: Invalid value: {quoted}: {REASON}'
    causes = [{"reason": "FieldValueInvalid", "message": message[14:], "field": "patch"}]
    status = {"kind": "Status", "message": message, "details": {"causes": causes}, "code": 422}
    return f"Failed to patch object: {json.dumps(status)}"


def test_the_object_is_removed_and_the_reason_kept() -> None:
    """Both quotations are replaced, also if strings of the object end like a quotation."""
    body = {"metadata": {"annotations": {"a": 'x}": y', "b": "Invalid value: {" * 50}}}
    short = without_quoted_objects(error_of(body))
    assert short.count('Invalid value: \\"{...}\\": json: cannot unmarshal') == 2
    assert "annotations" not in short
    assert json.loads(short.partition(": ")[2])["code"] == 422


def test_short_values_and_other_messages_are_kept() -> None:
    """A short object helps; a quotation that does not end is left as it is."""
    for message in (
        error_of({"spec": {"replicas": "1 "}}),
        'spec.size: Invalid value: "string": must be of type integer',
        'Invalid value: "{' * 1000 + "}" * 1000,
        "",
    ):
        assert without_quoted_objects(message) == message
