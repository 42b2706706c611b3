"""Messages of failed tasks name the cause, in the same words in each retry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from operator_runner.ansible.api_errors import readable, reason_and_code

FORBIDDEN = (
    'configmaps "x" is forbidden: User "system:serviceaccount:a:b" cannot get resource "configmaps"'
    ' in API group "" in the namespace "it\'s"'
)
FINALIZATION = "Finalization of task args for 'kubernetes.core.k8s' failed: "


def status(
    message: str = FORBIDDEN, reason: str = "Forbidden", code: int = 403, **more: Any
) -> str:
    """Return a Status as the API server sends it."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    known = {"message": message, "reason": reason, "code": code}
    return json.dumps(body | known | more, separators=(",", ":")) + "\n"


def response(body: str, audit: str = "a1") -> str:
    """Return what an exception of the Kubernetes client has as text."""
    headers = f"HTTPHeaderDict({{'Audit-Id': '{audit}', 'Date': 'Mon'}})"
    return f"403\nReason: Forbidden\nHTTP response headers: {headers}\nHTTP response body: {body}\n"


@pytest.mark.parametrize("body", [status(), repr(status().encode()), repr(status("x").encode())])
@pytest.mark.parametrize(
    ("form", "prefix"),
    [
        ("Failed to patch object: {0}", "Failed to patch object: "),
        ("Exception '{1}' raised while trying to get resource using (name=x, namespace=a)", ""),
        ("ConfigMap x: {1}Original traceback: \n  File 'a.py', line 3\n", "ConfigMap x: "),
        ("({1}", ""),
    ],
)
def test_an_answer_of_the_api_is_its_message_with_reason_and_code(
    body: str, form: str, prefix: str
) -> None:
    """JSON and the text of bytes, with and without headers and traceback; of any time.

    A rule that is missing is named, with the command.
    """
    is_rule = "forbidden:" in body
    message = FORBIDDEN if is_rule else "x"
    cure = "; add the rule `get configmaps`: `operator-runner rbac` derives it" if is_rule else ""
    for audit in ("a1", "b2"):
        text = form.format(body, response(body, audit))
        assert readable(text) == f"{prefix}{message} (Forbidden, 403){cure}"


def test_the_object_of_an_answer_is_named() -> None:
    """Where the message does not have its name."""
    text = status("no quota", details={"kind": "pods", "name": "web"})
    assert readable(f"Failed to create object: {text}") == (
        "Failed to create object: no quota (pods web) (Forbidden, 403)"
    )


def test_an_answer_without_a_status_has_its_first_line() -> None:
    """Of a proxy or a webhook, for example."""
    assert readable(response("<html>no</html>\nmore")) == "<html>no</html> (Forbidden, 403)"


def test_what_a_role_adds_is_kept() -> None:
    """Before and after the answer."""
    text = f"Cannot go on: {status('x')[:-1]}; ask your administrator"
    assert readable(text) == "Cannot go on: x (Forbidden, 403); ask your administrator"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"Task failed: {FINALIZATION}Error while resolving value for 'a': 'size' is undefined",
            "'size' is undefined",
        ),
        ("Task failed: no such thing", "no such thing"),
        (
            "unsupported: '_AnsibleTaggedInt' and '_AnsibleTaggedStr'",
            "unsupported: 'int' and 'str'",
        ),
        (
            "Failed to find exact match for a/v1.Web by [kind, name, singularName, shortNames]",
            "Web of a/v1 is not served: is its CRD installed?",
        ),
        ('{"kind":"Status"', '{"kind":"Status"'),
        ('b\'\\xff\' {"kind": "Status", ', 'b\'\\xff\' {"kind": "Status", '),
        ("plain text", "plain text"),
    ],
)
def test_steps_and_types_of_ansible_are_removed(text: str, expected: str) -> None:
    """What is not an answer, or an incomplete one, is kept otherwise."""
    assert readable(text) == expected


@pytest.mark.parametrize(
    ("message", "reason", "code"),
    [
        (f"Failed to patch object: {status()}", "Forbidden", 403),
        (f"Failed to patch object: {status(reason='NotOwned')}", "NotOwned", 403),
        (f"Failed: {status('x', 'Conflict', 409)}", "Conflict", 409),
        (f"Failed: {status('x', '', 422)}", "Other", 422),
        (response("<html>").replace("Forbidden", "Too Many Requests"), "TooManyRequests", 403),
        ("non-zero return code 2: no such file", "CommandFailed", 2),
        ("Failed to find exact match for v1.Web by [kind, name, x]", "NotServed", None),
        (f"{FINALIZATION}'a' is undefined", "UndefinedVariable", None),
        ("object of type 'dict' has no attribute 'a'", "UndefinedVariable", None),
        ("'dict object' has no attribute 'a'", "UndefinedVariable", None),
        ("'NoneType' object has no attribute 'get'", "Other", None),
        ('"Deployment" "web": Timed out waiting on resource', "Timeout", None),
        ("timeout: the run was ended after 3 s (key timeout of the watch)", "Timeout", None),
        ("`until: a` is false after 3 attempts", "Timeout", None),
        ("no disk", "Other", None),
    ],
)
def test_a_failure_has_a_reason_and_a_code(message: str, reason: str, code: int | None) -> None:
    """Those of the Status, the return code, or a word for what Ansible reports."""
    assert reason_and_code(readable(message), "Other") == (reason, code)
