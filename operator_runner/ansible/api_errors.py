"""Make the message of a failed task readable: what is wrong, without quoted answers. Pure.

kubernetes.core quotes answers of the API server: the Status as JSON, often with the headers of the
response and a traceback. Headers such as Date and Audit-Id differ in each retry of one failure.
ansible-core begins messages with the steps of its own that led to them.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from operator_runner.core.model import GVK

_STEPS = re.compile(
    r"\A(?:Task failed: )?(?:Action failed: )?(?:Unexpected AnsibleActionFail error: )?"
    r"(?:Finalization of task args for '[^'\n]*' failed: )?"
    r"(?:Error while resolving value for '[^'\n]*': )?"
)
_TAGGED = re.compile(r"\b_AnsibleTagged(Str|Int|Float|Dict|List|Tuple)\b")
"""Types of values whose origin ansible-core knows."""
_RESPONSE = re.compile(
    r"(?:Exception ')?\(?\b(?P<code>\d{3})\)?\nReason: (?P<reason>[^\n]*)\n"
    r"(?:HTTP response headers: [^\n]*\n)?(?:HTTP response body: )?"
)
"""What precedes the body in the text of an ApiException or a DynamicApiError."""
_AFTER_RESPONSE = re.compile(
    r"\s*(?:Original traceback: .*)?(?:' raised while trying to get resource using .*)?", re.DOTALL
)
_STATUS = re.compile(
    r"""(?P<bytes>b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*")|(?=\{\s*"kind":\s*"Status")"""
)
"""A body: the representation of bytes, or JSON."""
_UNSERVED = re.compile(
    r"Failed to find exact match for (?P<version>\S+)\.(?P<kind>\w+) by \[kind, name, [^\]]*\]"
)
_UNSERVED_KIND = re.compile(
    r"\b(?P<kind>\w{1,63}) of (?P<version>\S{1,320}) is not served: is its CRD installed\?"
)
_TIMED_OUT = re.compile(r'"(\w+)" "([^"\s]+)": Timed out waiting on resource')
"""Message of kubernetes.core.k8s whose `wait` has ended."""
_FORBIDDEN = re.compile(r'cannot (\S+) resource "([^"]+)" in API group "([^"]*)"')
"""What RBAC does not allow: verb, resource and group."""
_HIDDEN = re.compile(r"\Athe output has been hidden due to the fact that 'no_log: true' .*")
_FACTS = re.compile(r"\((?:([A-Za-z][A-Za-z ]*), )?([1-5]\d\d)\)")
"""Reason and code of an answer in a readable message."""
_COMMAND = re.compile(r"non-zero return code (-?\d+)")
_REASONS = {
    "NotServed": _UNSERVED_KIND,
    "UndefinedVariable": re.compile(
        r"' is undefined|(?:object of type '\w+'|'\w+ object') has no attribute '"
    ),
    "Timeout": re.compile(
        r"[Tt]imed out\b|\b[Tt]imeout\b|expected time frame|requested time\b"
        r"|is false after \d+ attempts?\Z"
    ),
}
"""Reasons of failures without an answer of the API, which has a reason of its own.

Source: `until`, `timeout`, `async` and wait_for of ansible-core; ResourceTimeout of k8s modules.
"""
_SHORT_CHARACTERS = 200
"""Length up to which a quoted value is kept."""
# Each level of JSON in JSON doubles the backslashes before a quotation mark.
_OPENING = re.compile(r'Invalid value: (\\{0,15}")(?=\{)')


def readable(message: str) -> str:
    """Return the message of a failed task without quoted answers of the API and without steps.

    An answer is reduced to the message of its Status, with reason and code.
    """
    message = _TAGGED.sub(lambda match: match[1].lower(), _STEPS.sub("", message, count=1))
    message = _UNSERVED.sub(
        r"\g<kind> of \g<version> is not served: is its CRD installed?", message
    )
    message = _TIMED_OUT.sub(r"timed out waiting for \1 \2", message)
    message = _HIDDEN.sub(
        "output hidden by no_log; to see it, set `no_log: false` while no secret is in use", message
    )
    response = _RESPONSE.search(message)
    body = message[response.end() :] if response else message
    before, status, after = _parsed(body)
    if response is not None:
        prefix = message[: response.start()]
        if not status:
            first = body.strip().partition("\n")[0]
            before, after = "", ""
            status = {"message": first, **response.groupdict()}
        before = prefix + before
        if _AFTER_RESPONSE.fullmatch(after):
            after = ""
    elif not status:
        return without_quoted_objects(message)
    text = _text(status)
    return without_quoted_objects(f"{before}{text}{after.rstrip()}{_cure(text)}")


def unserved_kind(message: str) -> GVK | None:
    """Return the kind that is not served according to a readable message, else None."""
    found = _UNSERVED_KIND.search(message)
    return None if found is None else GVK.of(found["version"], found["kind"])


def reason_and_code(message: str, otherwise: str) -> tuple[str, int | None]:
    """Return reason and code of a readable message: those of its answer, or of what has failed."""
    if answer := _FACTS.search(message):
        return (answer[1] or otherwise).replace(" ", ""), int(answer[2])
    if command := _COMMAND.search(message):
        return "CommandFailed", int(command[1])
    found = (reason for reason, pattern in _REASONS.items() if pattern.search(message))
    return next(found, otherwise), None


def _parsed(text: str) -> tuple[str, dict[str, Any], str]:
    """Return the first Status in a text, empty without one, and what is before and after it."""
    for match in _STATUS.finditer(text):
        try:
            if literal := match["bytes"]:
                status, end = json.loads(ast.literal_eval(literal)), match.end()
            else:
                status, end = json.JSONDecoder().raw_decode(text, match.start())
        except (ValueError, SyntaxError, RecursionError):
            continue
        if isinstance(status, dict) and status.get("kind") == "Status":
            return text[: match.start()], status, text[end:]
    return text, {}, ""


def _text(status: dict[str, Any]) -> str:
    """Return message, object, reason and code of a Status, as far as it has them."""
    message = str(status.get("message") or "").strip()
    details = status.get("details")
    if isinstance(details, dict) and (name := str(details.get("name") or "")) not in message:
        message = f"{message} ({details.get('kind') or 'object'} {name})"
    facts = ", ".join(str(fact) for key in ("reason", "code") if (fact := status.get(key)))
    return f"{message} ({facts})" if message and facts else message or facts


def _cure(message: str) -> str:
    """Return what follows a message about a permission that is missing; else empty."""
    if (missing := _FORBIDDEN.search(message)) is None:
        return ""
    resource = ".".join(filter(None, missing.groups()[1:]))
    return f"; add the rule `{missing[1]} {resource}`: `operator-runner rbac` derives it"


def without_quoted_objects(message: str) -> str:
    """Return a message with `{...}` in place of long objects in `Invalid value`.

    Objects that cannot be decoded are quoted before the reason: `Invalid value: "{...}": json:
    cannot unmarshal string into Go struct field ...`.
    """
    parts: list[str] = []
    kept = at = 0
    unclosed: set[str] = set()
    while (opening := _OPENING.search(message, at)) is not None:
        quote, at = opening[1], opening.end()
        if quote in unclosed:
            continue
        end = message.find("}" + quote + ": ", at)
        if end < 0:
            unclosed.add(quote)
        elif end - at > _SHORT_CHARACTERS:
            parts += [message[kept:at], "{...}"]
            kept = at = end + 1
    return "".join([*parts, message[kept:]])
