"""Names, filters, tests, lookups and templates that a Jinja template uses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jinja2 import Environment, meta, nodes

from operator_runner.ansible.templating.text_templates import TESTS_OF_UNDEFINED
from operator_runner.tools.validate.values import has_marks

_LOOKUPS = {"lookup", "query", "q"}
_TEMPLATE_LOOKUPS = {"template", "ansible.builtin.template"}
_GUARD_TESTS = {*("defined", "undefined", "ansible.builtin.defined", "ansible.builtin.undefined")}
_ASSIGNMENTS = (nodes.Assign, nodes.AssignBlock)
_GUARD_FILTERS = {"default", "d", "ansible.builtin.default"}
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


@dataclass(frozen=True, slots=True)
class Uses:
    """All that a template uses; `variables` are those that it does not define itself."""

    variables: tuple[NameUse, ...] = ()
    guarded: frozenset[str] = frozenset()
    """Variables that may be undefined: with `is defined` or a default."""
    typed: frozenset[str] = frozenset()
    """Variables that may be undefined with text types: with `is number` and the like."""
    accesses: tuple[AttributeUse, ...] = ()
    filters: tuple[NameUse, ...] = ()
    tests: tuple[NameUse, ...] = ()
    lookups: tuple[NameUse, ...] = ()
    files: tuple[NameUse, ...] = ()
    """Templates that the lookup `template` reads, where their name is literal."""
    other_syntax: tuple[NameUse, ...] = ()
    """Those that it reads with options, which may be other delimiters."""
    embedded: tuple[NameUse, ...] = ()
    """Templates within the texts that lookups are given."""


@dataclass(slots=True)
class _Collected:
    guarded: set[str] = field(default_factory=set)
    typed: set[str] = field(default_factory=set)
    lookups: list[NameUse] = field(default_factory=list)
    files: list[NameUse] = field(default_factory=list)
    other_syntax: list[NameUse] = field(default_factory=list)
    embedded: list[NameUse] = field(default_factory=list)


def uses(environment: Environment, text: str, aliases: Mapping[str, Path] | None = None) -> Uses:
    """Return what a template uses. Raises jinja2.TemplateSyntaxError.

    `aliases` are variables that are known to be part of another one: `item` of a loop.
    """
    tree = environment.parse(text)
    filters = tuple(NameUse(each.name, each.lineno) for each in tree.find_all(nodes.Filter))
    tests = tuple(NameUse(each.name, each.lineno) for each in tree.find_all(nodes.Test))
    collected = _Collected()
    for node in tree.find_all((nodes.Test, nodes.Filter, nodes.Call)):
        _collect(node, collected)
    paths = _local_aliases(tree, dict(aliases or {}))
    accesses = tuple(_accesses(tree, paths))
    for named in tree.find_all((nodes.Filter, nodes.Test)):
        # jinja2 refuses unknown names while it looks for variables.
        assert isinstance(named, nodes.Filter | nodes.Test)
        named.name = "string"
    # jinja2 counts variables that the template sets in a branch alone as undeclared.
    own = {name for each in tree.find_all(_ASSIGNMENTS) for name in _targets(each)}
    undeclared = meta.find_undeclared_variables(tree) - set(environment.globals) - own
    roots = undeclared | {path[0] for path in (aliases or {}).values()}
    return Uses(
        variables=tuple(_first_uses(tree, undeclared)),
        guarded=frozenset(
            collected.guarded | {paths[name][0] for name in collected.guarded & paths.keys()}
        ),
        typed=frozenset(collected.typed),
        accesses=tuple(each for each in accesses if each.path[0] in roots),
        filters=filters,
        tests=tests,
        lookups=tuple(collected.lookups),
        files=tuple(collected.files),
        other_syntax=tuple(collected.other_syntax),
        embedded=tuple(collected.embedded),
    )


def path_of(environment: Environment, text: str) -> Path | None:
    """Return the path if a template is nothing but a variable, its attribute or key."""
    body = environment.parse(text).body
    if len(body) != 1 or not isinstance(body[0], nodes.Output) or len(body[0].nodes) != 1:
        return None
    return _path(body[0].nodes[0], {})


def _collect(node: nodes.Node, collected: _Collected) -> None:
    is_guard = (isinstance(node, nodes.Test) and node.name in _GUARD_TESTS) or (
        isinstance(node, nodes.Filter) and node.name in _GUARD_FILTERS
    )
    if is_guard and isinstance(node, nodes.Test | nodes.Filter) and node.node:
        collected.guarded |= _base(node.node)
    elif isinstance(node, nodes.Test) and node.name in TESTS_OF_UNDEFINED:
        collected.typed |= _base(node.node)
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
        texts = [each.value for each in node.args if isinstance(each, nodes.Const)]
        if node.node.name in _LOOKUPS and texts and isinstance(texts[0], str):
            collected.lookups.append(NameUse(texts[0], node.lineno))
            terms = [NameUse(name, node.lineno) for name in texts[1:] if isinstance(name, str)]
            collected.embedded += [each for each in terms if has_marks(each.name)]
            if texts[0] in _TEMPLATE_LOOKUPS:
                names = [each for each in terms if not has_marks(each.name)]
                (collected.other_syntax if node.kwargs else collected.files).extend(names)


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
