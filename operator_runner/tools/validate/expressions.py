"""Names, filters, tests, lookups and templates that a Jinja template uses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jinja2 import Environment, meta, nodes

from operator_runner.ansible.templating.text_templates import TESTS_OF_UNDEFINED
from operator_runner.tools.validate.values import has_marks, short_name

_LOOKUPS = {"lookup", "query", "q"}
_GUARDS = {"defined", "undefined", "default", "d"}
"""Tests and filters that expect an undefined variable."""
_ASSIGNMENTS = (nodes.Assign, nodes.AssignBlock)
ITEM = "*"
"""Any item of a list within a path."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NameUse:
    """A name and the line, from 1, in the template."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class AttributeUse:
    """An attribute or key of a variable: `web.tls.key` is (web, tls, key)."""

    path: Path
    line: int


@dataclass(slots=True)
class Uses:
    """All that a template uses; `variables` are those that it does not define itself."""

    variables: list[NameUse] = field(default_factory=list)
    guarded: set[str] = field(default_factory=set)
    """Variables that may be undefined: with `is defined` or a default."""
    typed: set[str] = field(default_factory=set)
    """Variables that may be undefined with text types: with `is number` and the like."""
    accesses: list[AttributeUse] = field(default_factory=list)
    filters: list[NameUse] = field(default_factory=list)
    tests: list[NameUse] = field(default_factory=list)
    lookups: list[NameUse] = field(default_factory=list)
    files: list[NameUse] = field(default_factory=list)
    """Templates that the lookup `template` reads, where their name is literal."""
    embedded: list[NameUse] = field(default_factory=list)
    """Templates within the texts that lookups are given."""


def uses(environment: Environment, text: str, aliases: Mapping[str, Path] | None = None) -> Uses:
    """Return what a template uses. Raises jinja2.TemplateSyntaxError.

    `aliases` are variables that are known to be part of another one: `item` of a loop.
    """
    tree = environment.parse(text)
    found = Uses()
    for node in tree.find_all((nodes.Test, nodes.Filter, nodes.Call)):
        _collect(node, found)
    paths = _local_aliases(tree, dict(aliases or {}))
    accesses = list(_accesses(tree, paths))
    for named in tree.find_all((nodes.Filter, nodes.Test)):
        # jinja2 refuses unknown names while it looks for variables.
        assert isinstance(named, nodes.Filter | nodes.Test)
        named.name = "string"
    # jinja2 counts variables that the template sets in a branch alone as undeclared.
    own = {name for each in tree.find_all(_ASSIGNMENTS) for name in _targets(each)}
    undeclared = meta.find_undeclared_variables(tree) - set(environment.globals) - own
    roots = undeclared | {path[0] for path in (aliases or {}).values()}
    found.variables += _first_uses(tree, undeclared)
    found.guarded |= {paths[name][0] for name in found.guarded & paths.keys()}
    found.accesses += (each for each in accesses if each.path[0] in roots)
    return found


def path_of(environment: Environment, text: str) -> Path | None:
    """Return the path if a template is nothing but a variable, its attribute or key."""
    body = environment.parse(text).body
    if len(body) != 1 or not isinstance(body[0], nodes.Output) or len(body[0].nodes) != 1:
        return None
    return _path(body[0].nodes[0], {})


def _collect(node: nodes.Node, found: Uses) -> None:
    if isinstance(node, nodes.Test | nodes.Filter):
        named = found.tests if isinstance(node, nodes.Test) else found.filters
        named.append(NameUse(node.name, node.lineno))
        if node.node and short_name(node.name) in _GUARDS:
            found.guarded |= _base(node.node)
        elif isinstance(node, nodes.Test) and node.name in TESTS_OF_UNDEFINED:
            found.typed |= _base(node.node)
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
        texts = [each.value for each in node.args if isinstance(each, nodes.Const)]
        if node.node.name in _LOOKUPS and texts and isinstance(texts[0], str):
            found.lookups.append(NameUse(texts[0], node.lineno))
            terms = [NameUse(name, node.lineno) for name in texts[1:] if isinstance(name, str)]
            found.embedded += (each for each in terms if has_marks(each.name))
            # With options it may have other delimiters.
            if short_name(texts[0]) == "template" and not node.kwargs:
                found.files += (each for each in terms if not has_marks(each.name))


def _targets(node: nodes.Node) -> Iterator[str]:
    assert isinstance(node, nodes.Assign | nodes.AssignBlock)
    for each in (node.target, *node.target.find_all(nodes.Name)):
        if isinstance(each, nodes.Name):
            yield each.name


def _base(node: nodes.Node) -> set[str]:
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        node = node.node
    return {node.name} if isinstance(node, nodes.Name) else set()


def _local_aliases(tree: nodes.Template, aliases: dict[str, Path]) -> dict[str, Path]:
    """Add the variables of loops over paths; a name with two meanings is left out."""
    stored = [each.name for each in tree.find_all(nodes.Name) if each.ctx in ("store", "param")]
    found = {name: path for name, path in aliases.items() if name not in stored}
    for each in tree.find_all(nodes.For):
        path = _path(each.iter, found)
        if path and isinstance(each.target, nodes.Name) and stored.count(each.target.name) == 1:
            found[each.target.name] = (*path, ITEM)
    return found


def _accesses(tree: nodes.Template, aliases: Mapping[str, Path]) -> Iterator[AttributeUse]:
    for node in tree.find_all((nodes.Getattr, nodes.Getitem)):
        path = _path(node, aliases)
        if path and len(path) > 1 and path[-1] != ITEM:
            yield AttributeUse(path, node.lineno)


def _path(node: nodes.Node, aliases: Mapping[str, Path]) -> Path | None:
    if isinstance(node, nodes.Name):
        return aliases.get(node.name, (node.name,)) if node.ctx == "load" else None
    if isinstance(node, nodes.Getattr):
        owner = _path(node.node, aliases)
        return (*owner, node.attr) if owner else None
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        owner = _path(node.node, aliases)
        key = node.arg.value
        return (*owner, key if isinstance(key, str) else ITEM) if owner else None
    return None


def _first_uses(tree: nodes.Template, names: set[str]) -> Iterator[NameUse]:
    lines: dict[str, int] = {}
    for node in tree.find_all(nodes.Name):
        if node.name in names and node.ctx == "load":
            lines[node.name] = min(node.lineno, lines.get(node.name, node.lineno))
    for name in sorted(names):
        yield NameUse(name, lines.get(name, 1))
