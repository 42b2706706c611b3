"""Compare granted rules with required ones. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from operator_runner.tools.rbac.access_rules import AccessRule, Requirement
from operator_runner.tools.rbac.grants import GrantedRule

_Findings: TypeAlias = defaultdict[tuple[AccessRule, str], set[str]]
"""Verbs by rule (without its verb) and reason."""


def differences(requirements: Sequence[Requirement], granted: Sequence[GrantedRule]) -> list[str]:
    """Return a line for each resource with missing rules, then for each with superfluous ones.

    `requirements` are the minimal ones.
    """
    return [*missing_rules(requirements, granted), *_superfluous_rules(requirements, granted)]


def missing_rules(requirements: Sequence[Requirement], granted: Sequence[GrantedRule]) -> list[str]:
    """Return a line for each resource with required rules that are not granted."""
    missing: _Findings = defaultdict(set)
    rules = {one.rule for one in granted}
    for requirement in requirements:
        if not requirement.is_met(rules):
            missing[replace(requirement.rule, verb=""), requirement.reason].add(
                requirement.rule.verb
            )
    return [*_lines("missing", missing)]


def _superfluous_rules(
    requirements: Sequence[Requirement], granted: Sequence[GrantedRule]
) -> list[str]:
    """Return a line for each resource with granted rules that are not required.

    A rule that is wider than required is superfluous; its line lists the rules that suffice.
    """
    superfluous: _Findings = defaultdict(set)
    required = {requirement.rule for requirement in requirements}
    for one in granted:
        if one.rule not in required:
            reason = f"granted by {one.role}; {_alternative(one.rule, requirements)}"
            superfluous[replace(one.rule, verb=""), reason].add(one.rule.verb)
    return [*_lines("superfluous", superfluous)]


def _lines(word: str, findings: _Findings) -> Iterator[str]:
    for (rule, reason), verbs in findings.items():
        yield f"{word}: {replace(rule, verb=', '.join(sorted(verbs)))}: {reason}"


def _alternative(granted: AccessRule, requirements: Sequence[Requirement]) -> str:
    """Return the rules that suffice in place of a wider one, if any."""
    enough = sorted(
        {
            str(requirement.rule)
            for requirement in requirements
            if any(map(granted.covers, (requirement.rule, *requirement.instead)))
        }
    )
    if enough:
        return f"sufficient: {', '.join(enough)}"
    return "required by neither the runner nor a recorded request"
