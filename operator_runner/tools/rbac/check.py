"""Whether what is granted is what is needed, no less and no more. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from operator_runner.tools.rbac.grants import Granted
from operator_runner.tools.rbac.right import Need, Right

_Findings: TypeAlias = defaultdict[tuple[Right, str], set[str]]
"""Verbs by right (without its verb) and reason."""


def differences(needs: Sequence[Need], granted: Sequence[Granted]) -> list[str]:
    """Return a line for what is missing of each resource, then for what is superfluous.

    `needs` are the smallest ones. A right that is wider than needed is superfluous, and the
    line says which would do.
    """
    missing: _Findings = defaultdict(set)
    for need in needs:
        if not any(one.right.covers(need.right) for one in granted):
            missing[replace(need.right, verb=""), need.reason].add(need.right.verb)
    superfluous: _Findings = defaultdict(set)
    wanted = {need.right for need in needs}
    for one in granted:
        if one.right not in wanted:
            why = f"granted by {one.role}; {_why_not(one.right, needs)}"
            superfluous[replace(one.right, verb=""), why].add(one.right.verb)
    return [*_lines("missing", missing), *_lines("superfluous", superfluous)]


def _lines(word: str, findings: _Findings) -> Iterator[str]:
    for (right, reason), verbs in findings.items():
        yield f"{word}: {replace(right, verb=', '.join(sorted(verbs)))}: {reason}"


def _why_not(granted: Right, needs: Sequence[Need]) -> str:
    """Return what would do in place of a right that is wider than needed, if anything."""
    enough = sorted({str(need.right) for need in needs if granted.covers(need.right)})
    if enough:
        return f"enough is: {', '.join(enough)}"
    return "neither the runner nor a recorded request needs it"
