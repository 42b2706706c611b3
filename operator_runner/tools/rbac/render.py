"""Needs as manifests: roles with a comment above each rule, or a component for kustomize. Pure."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from operator_runner.tools.rbac.manager import PLACEHOLDER
from operator_runner.tools.rbac.right import EVERYWHERE, OPERATORS, Need

_API = "rbac.authorization.k8s.io"
_WIDTH = 100
_MADE = "# Made by `operator-runner rbac`, which tells above each rule who needs it."


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """A rule of a role and why it is there; `names` are resourceNames."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...]
    paths: tuple[str, ...]
    verbs: tuple[str, ...]
    reasons: tuple[str, ...]


def rules_of(needs: Sequence[Need]) -> list[Rule]:
    """Return the fewest rules that grant exactly these needs, in a stable order."""
    verbs: defaultdict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    causes: defaultdict[tuple[str, str, str, str], dict[str, set[str]]] = defaultdict(dict)
    for need in needs:
        right = need.right
        what = (right.group, right.resource, right.name, right.path)
        verbs[what].add(right.verb)
        causes[what].setdefault(need.reason, set()).add(right.verb)
    reasons = {what: _told(told) for what, told in causes.items()}
    # Resources of a group with the same verbs, names and reasons are one rule.
    merged: defaultdict[tuple[object, ...], list[tuple[str, str, str, str]]] = defaultdict(list)
    for what, used in verbs.items():
        merged[what[0], what[2], bool(what[3]), *sorted(used), *reasons[what]].append(what)
    return sorted(
        Rule(
            () if first[3] else (first[0],),
            () if first[3] else tuple(sorted(what[1] for what in whats)),
            (first[2],) if first[2] else (),
            tuple(sorted(what[3] for what in whats)) if first[3] else (),
            tuple(sorted(verbs[first])),
            tuple(reasons[first]),
        )
        for whats in merged.values()
        for first in whats[:1]
    )


def _told(reasons: dict[str, set[str]]) -> list[str]:
    """Return the reasons of a rule; of several, each tells its verbs."""
    if len(reasons) == 1:
        return [*reasons]
    return [f"{reason}: {', '.join(sorted(verbs))}" for reason, verbs in sorted(reasons.items())]


def roles_of(needs: Sequence[Need]) -> dict[tuple[str, str], list[Rule]]:
    """Return the rules by name of the role and scope; the manager's comes first."""
    places = sorted({(need.role, need.right.scope) for need in needs}, key=_order)
    return {
        (role, scope): rules_of(
            [need for need in needs if (need.role, need.right.scope) == (role, scope)]
        )
        for role, scope in places
    }


def manifest(needs: Sequence[Need]) -> str:
    """Return roles as YAML; one that is bound nowhere else comes with its RoleBinding."""
    parts = []
    for (role, scope), rules in roles_of(needs).items():
        parts.append(_role(role, scope, rules))
        if role == "manager-role" and scope != EVERYWHERE:
            parts.append(_binding(role, scope))
    return f"{_MADE}\n" + "---\n".join(parts)


def component(needs: Sequence[Need]) -> str:
    """Return a component for kustomize that replaces the rules of roles that are there."""
    patches = []
    for (role, scope), rules in roles_of(needs).items():
        kind = "ClusterRole" if scope == EVERYWHERE else "Role"
        namespace = (
            f", namespace: {_namespace(scope)}" if scope not in {EVERYWHERE, OPERATORS} else ""
        )
        lines = "\n".join(_rules(rules))
        patches.append(
            f"  - target: {{kind: {kind}, name: {role}{namespace}}}\n"
            "    patch: |-\n"
            "      - op: replace\n"
            "        path: /rules\n"
            "        value:\n" + textwrap.indent(lines, " " * 10) + "\n"
        )
    head = f"{_MADE}\napiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n"
    return head + "".join(patches)


def _order(place: tuple[str, str]) -> tuple[bool, str, str]:
    return (place[0] != "manager-role", *place)


def _namespace(scope: str) -> str:
    return PLACEHOLDER if scope == OPERATORS else scope


def _role(role: str, scope: str, rules: Sequence[Rule]) -> str:
    kind = "ClusterRole" if scope == EVERYWHERE else "Role"
    namespace = "" if scope == EVERYWHERE else f"  namespace: {_namespace(scope)}\n"
    head = f"apiVersion: {_API}/v1\nkind: {kind}\nmetadata:\n  name: {role}\n{namespace}rules:\n"
    return head + textwrap.indent("\n".join(_rules(rules)), "  ") + "\n"


def _binding(role: str, scope: str) -> str:
    name = role.replace("-role", "-rolebinding")
    return (
        f"apiVersion: {_API}/v1\nkind: RoleBinding\n"
        f"metadata:\n  name: {name}\n  namespace: {_namespace(scope)}\n"
        f"roleRef:\n  apiGroup: {_API}\n  kind: Role\n  name: {role}\n"
        "subjects:\n  - kind: ServiceAccount\n    name: controller-manager\n"
        f"    namespace: {PLACEHOLDER}\n"
    )


def _rules(rules: Sequence[Rule]) -> Iterator[str]:
    for rule in rules:
        for reason in rule.reasons:
            yield from textwrap.wrap(
                f"{reason[0].upper()}{reason[1:]}",
                _WIDTH - 4,
                initial_indent="# ",
                subsequent_indent="#   ",
            )
        fields = {
            "nonResourceURLs": rule.paths,
            "apiGroups": rule.groups,
            "resources": rule.resources,
            "resourceNames": rule.names,
            "verbs": rule.verbs,
        }
        lines = [f"{key}: {_flow(values)}" for key, values in fields.items() if values]
        yield f"- {lines[0]}"
        yield from (f"  {line}" for line in lines[1:])


def _flow(values: Sequence[str]) -> str:
    return (
        yaml.safe_dump([*values], default_flow_style=True, width=10_000).strip().replace("''", '""')
    )
