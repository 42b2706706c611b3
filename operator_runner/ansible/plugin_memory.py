"""Read the source of filters and tests: whether they leave something behind in their process.

One without memory is functions, classes and constants. What it returns depends on its arguments,
and it changes nothing that a later task of the same process could find: no object of its module, of
its class or of another module, no setting of the process. Anything that is not recognised counts as
memory; so do lookups, which get the variables of the play. Authors of plugins are trusted; this is
about what they share by mistake.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

KINDS = ("filter", "test", "lookup")
"""Kinds of plugins that templates call."""
_KNOWN_NAMESPACES = {
    *("amazon", "ansible", "awx", "azure", "cloud", "community", "containers", "google"),
    *("kubernetes", "openshift", "operator_sdk", "redhat"),
}
"""Namespaces of collections whose plugins for templates are functions without memory."""
_KEPT = {"FilterModule": "filters", "TestModule": "tests"}
"""Classes whose objects Ansible keeps, with the method that names the plugins."""
_PURE_LIBRARIES = (
    *("__future__", "abc", "ast", "base64", "binascii", "collections", "contextlib", "copy"),
    *("dataclasses", "datetime", "difflib", "enum", "fnmatch", "fractions", "gzip", "hashlib"),
    *("hmac", "html", "ipaddress", "itertools", "json", "math", "numbers", "operator", "os.path"),
    *("pathlib", "re", "secrets", "shlex", "statistics", "string", "textwrap", "typing"),
    *("unicodedata", "urllib.parse", "uuid", "zlib"),
    *("ansible.errors", "ansible.module_utils._text", "ansible.module_utils.common.collections"),
    *("ansible.module_utils.common.text", "ansible.module_utils.parsing.convert_bool"),
    *("ansible.module_utils.six", "ansible.utils.display"),
    "jinja2.exceptions",
)
_PURE_NAMES = {
    *("os.environ.get", "os.getenv", "os.linesep", "os.sep", "os.fspath", "sys.maxsize"),
    *("sys.version_info", "time.gmtime", "time.localtime", "time.mktime", "time.strftime"),
    *("time.strptime", "time.time", "functools.reduce", "functools.wraps"),
    *("functools.cmp_to_key", "functools.total_ordering", "decimal.Decimal"),
    *("decimal.InvalidOperation", "yaml.YAMLError", "yaml.dump", "yaml.safe_dump"),
    *("yaml.safe_load", "yaml.safe_load_all", "yaml.SafeLoader", "yaml.SafeDumper"),
    *("jinja2.Undefined", "jinja2.runtime.Undefined"),
}
"""Names of other libraries that neither change their process nor keep anything."""
_IMPURE_BUILTINS = {
    *("__import__", "breakpoint", "compile", "delattr", "eval", "exec", "exit", "globals"),
    *("help", "input", "locals", "print", "quit", "setattr", "vars"),
}
_CONSTANT_CALLS = {"re.compile", "frozenset", "collections.namedtuple"}
_READING_CALLS = {
    *("all", "any", "bool", "dict", "enumerate", "float", "frozenset", "int", "isinstance"),
    *("len", "list", "max", "min", "repr", "set", "sorted", "str", "sum", "tuple"),
}
_READING_METHODS = {"copy", "count", "get", "index", "items", "keys", "union", "values"}
_DUNDERS = {"__init__", "__name__", "__doc__", "__version__"}
_FUNCTIONS = (ast.FunctionDef, ast.Lambda)
_VALUES = (
    *(ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.Compare, ast.UnaryOp, ast.BinOp),
    *(ast.BoolOp, ast.IfExp, ast.Subscript, ast.Tuple, ast.List, ast.Set, ast.Dict),
)
"""Expressions that are constant, or a container, if their parts are constants."""


class Plugin(NamedTuple):
    """A file of plugins for templates."""

    path: Path
    kind: str
    memory: str
    """Why it may leave something behind in its process; empty if it does not."""
    names: frozenset[str] | None
    """Names of its plugins in templates, without that of a collection; None: not known."""
    changes_when_loaded: bool
    """Whether loading it may change the process, not only a call."""


class _Memory(Exception):
    """Memory was found."""

    def __init__(self, node: ast.AST, what: str, *, when_loaded: bool = False) -> None:
        super().__init__(f"line {getattr(node, 'lineno', 1)} {what}")
        self.when_loaded = when_loaded


def plugins_beside(folder: Path) -> Iterator[Plugin]:
    """Yield the plugins for templates in the usual folders of a role, or beside a playbook."""
    for kind in KINDS:
        yield from plugins_in(folder / f"{kind}_plugins", kind)


def plugins_in(folder: Path, kind: str) -> Iterator[Plugin]:
    """Yield the plugins of a folder and of its subfolders, as Ansible finds them."""
    for path in sorted(folder.rglob("*.py")):
        if path.name != "__init__.py":
            yield read_plugin(path, kind)


def plugins_of_collections(folder: Path) -> Iterator[Plugin]:
    """Yield the plugins for templates of collections that are not well known."""
    top = folder / "ansible_collections"
    if (top / "ansible_release.py").exists():
        return  # the distribution `ansible`
    for kind in KINDS:
        for place in sorted(top.glob(f"*/*/plugins/{kind}")):
            if place.parts[-4] not in _KNOWN_NAMESPACES:
                yield from plugins_in(place, kind)


def read_plugin(path: Path, kind: str) -> Plugin:
    """Read a file of plugins; one that cannot be read or parsed may do anything."""
    if kind == "lookup":
        memory = "a lookup gets the variables of the play"
        return Plugin(path, kind, memory, frozenset({path.stem}), changes_when_loaded=False)
    names: frozenset[str] | None = None
    try:
        tree = ast.parse(path.read_bytes())
        names = _names(tree)
        _Module(tree).check()
    except _Memory as found:
        return Plugin(path, kind, str(found), names, found.when_loaded)
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        return Plugin(path, kind, f"cannot be read: {error}", names, changes_when_loaded=True)
    return Plugin(path, kind, "", names, changes_when_loaded=False)


def _names(tree: ast.Module) -> frozenset[str] | None:
    """Return the keys of the literals that `filters` and `tests` return; None: not known."""
    names: set[object] = set()
    for method in _listings(tree):
        match [each for each in method.body if not _is_text(each)]:
            case [ast.Return(value=ast.Dict(keys=keys))]:
                names |= {getattr(key, "value", None) for key in keys}
            case _:
                return None
    is_literal = names and all(isinstance(name, str) for name in names)
    return frozenset(map(str, names)) if is_literal else None


def _listings(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the methods `filters` and `tests`."""
    for own in tree.body:
        if isinstance(own, ast.ClassDef) and own.name in _KEPT:
            for method in own.body:
                if isinstance(method, ast.FunctionDef) and method.name == _KEPT[own.name]:
                    yield method


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Module:
    """What the names of a module are, and how its functions use them."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._parents = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        self._kinds: dict[str, str] = {}
        """function, class, constant, container, nested, or the full name of what is imported."""
        self._locals: set[str] = set()
        """Names that functions bind."""

    def check(self) -> None:
        """Raise _Memory if the module has memory."""
        self._load(self._tree.body)
        for method in _listings(self._tree):
            inner = [node for node in ast.walk(method) if isinstance(node, _FUNCTIONS)]
            if _names(self._tree) is None and inner != [method]:
                raise _Memory(method, "makes functions, which may share variables")
        inside = [node for node in ast.walk(self._tree) if self._is_inside(node)]
        for node in inside:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._bind_imports(node)
            self._locals |= _bound(node)
        for name in self._locals & self._kinds.keys():
            if self._kinds[name] not in {"function", "class", "constant"}:
                raise _Memory(self._tree, f"has two meanings of `{name}`")
        for node in inside:
            self._check_node(node)

    def _load(self, body: Iterable[ast.stmt]) -> None:
        """Look at what is executed when the module, or a class, is loaded."""
        for each in body:
            match each:
                case ast.Import() | ast.ImportFrom():
                    self._bind_imports(each)
                case ast.FunctionDef(name=name):
                    self._check_function(each)
                    self._bind(each, name, "function")
                case ast.ClassDef(name=name):
                    self._load_class(each)
                    self._bind(each, name, "class")
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    self._bind(each, name, self._kind_of(value))
                case ast.If() | ast.Try():
                    self._load_branches(each)
                case _ if not isinstance(each, ast.Pass) and not _is_text(each):
                    raise _Memory(each, "does something when it is loaded", when_loaded=True)

    def _load_branches(self, each: ast.If | ast.Try) -> None:
        if isinstance(each, ast.Try):
            handlers = (stmt for handler in each.handlers for stmt in handler.body)
            self._load((*each.body, *handlers, *each.orelse, *each.finalbody))
        elif ast.unparse(each.test) in {"__name__ == '__main__'", "TYPE_CHECKING"}:
            self._load(each.orelse)
        else:
            self._kind_of(each.test)
            self._load((*each.body, *each.orelse))

    def _bind(self, node: ast.AST, name: str, kind: str) -> None:
        if self._kinds.setdefault(name, kind) != kind:
            raise _Memory(node, f"has two meanings of `{name}`")

    def _load_class(self, own: ast.ClassDef) -> None:
        is_kept = own.name in _KEPT
        bases = {ast.unparse(base) for base in own.bases} - {"object"}
        if own.keywords or own.decorator_list or (is_kept and bases):
            raise _Memory(own, f"defines the class `{own.name}` in an unusual way")
        for base in own.bases:
            self._kind_of(base)
        inner = _Module(ast.Module([], []))
        inner._kinds = dict(self._kinds)
        inner._load(own.body)
        for each in own.body:
            if isinstance(each, ast.Assign) and inner._kind_of(each.value) in {
                "container",
                "nested",
            }:
                raise _Memory(each, f"shares `{ast.unparse(each)}` between objects")

    def _bind_imports(self, each: ast.Import | ast.ImportFrom) -> None:
        if isinstance(each, ast.ImportFrom) and (each.level or each.names[0].name == "*"):
            raise _Memory(each, f"imports `{ast.unparse(each)}`")
        for alias in each.names:
            if isinstance(each, ast.ImportFrom):
                self._kinds[alias.asname or alias.name] = f"{each.module}.{alias.name}"
            else:
                top = alias.name.partition(".")[0]
                self._kinds[alias.asname or top] = alias.name if alias.asname else top

    def _kind_of(self, value: ast.AST) -> str:
        """Return what a value of the module is, one that is not recognised is nested.

        Raises _Memory for calls, but those that make constants.
        """
        if isinstance(value, ast.Lambda):
            self._check_function(value)
            return "function"
        if isinstance(value, ast.Call | ast.comprehension | ast.NamedExpr):
            name = self._full_name(value.func) if isinstance(value, ast.Call) else ""
            if name in _CONSTANT_CALLS or name.endswith(".Display"):
                return "constant"
            what = f"calls or computes `{ast.unparse(value)}` when it is loaded"
            raise _Memory(value, what, when_loaded=True)
        parts = {self._kind_of(part) for part in ast.iter_child_nodes(value) if _is_value(part)}
        if isinstance(value, ast.Name):
            known = self._kinds.get(value.id, "constant" if hasattr(builtins, value.id) else "")
            is_constant = known in {"function", "class", "constant"} or self._is_pure(value)
        elif isinstance(value, ast.Attribute):
            is_constant = self._is_pure(value)
        else:
            is_constant = isinstance(value, _VALUES) and parts <= {"constant", "function"}
            if is_constant and isinstance(value, ast.List | ast.Set | ast.Dict):
                return "container"
        return "constant" if is_constant else "nested"

    def _full_name(self, node: ast.AST) -> str:
        """Return the name with that of its library; that of a builtin or a local as it is."""
        if isinstance(node, ast.Attribute):
            return f"{self._full_name(node.value)}.{node.attr}"
        if not isinstance(node, ast.Name):
            return ""
        known = self._kinds.get(node.id, node.id)
        return node.id if known in {"function", "class", "constant"} else known

    def _is_pure(self, node: ast.AST) -> bool:
        """Whether an expression names something without memory in a library."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or root.id not in self._kinds:
            return False
        name = self._full_name(node)
        if any(part.startswith("_") for part in name.split(".")[1:] if part != "_text"):
            return False
        pure = any(name == each or name.startswith(f"{each}.") for each in _PURE_LIBRARIES)
        return pure or name in _PURE_NAMES

    def _is_inside(self, node: ast.AST) -> bool:
        """Whether a node is part of a function, which is executed when it is called."""
        found = False
        while (parent := self._parents.get(node)) is not None:
            found = found or isinstance(parent, _FUNCTIONS)
            if isinstance(parent, ast.If) and "__main__" in ast.unparse(parent.test):
                return False
            node = parent
        return found

    def _check_function(self, node: ast.FunctionDef | ast.Lambda) -> None:
        for default in filter(None, (*node.args.defaults, *node.args.kw_defaults)):
            if self._kind_of(default) != "constant":
                raise _Memory(node, f"keeps the default `{ast.unparse(default)}` between calls")
        for decorator in getattr(node, "decorator_list", ()):
            if self._full_name(decorator) not in {"staticmethod", "classmethod", "property"}:
                raise _Memory(decorator, f"has the decorator `{ast.unparse(decorator)}`")

    def _check_node(self, node: ast.AST) -> None:
        match node:
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                raise _Memory(node, f"changes `{', '.join(names)}`")
            case ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                raise _Memory(node, f"defines `{name}` in an unusual way")
            case ast.FunctionDef() | ast.Lambda():
                self._check_function(node)
            case ast.Attribute(attr=attr, ctx=ctx):
                is_own = isinstance(ctx, ast.Load) or self._is_self_of_a_call(node.value)
                if not is_own or (attr.startswith("__") and attr not in _DUNDERS):
                    raise _Memory(node, f"changes or uses `{ast.unparse(node)}`")
            case ast.Name():
                self._check_name(node)

    def _check_name(self, node: ast.Name) -> None:
        name = node.id
        if name == "self" and not self._is_self_of_a_call(node):
            if not isinstance(self._parents[node], ast.Attribute):
                raise _Memory(node, "passes on `self`, which is kept between calls")
        elif name in self._locals:
            return
        elif name in self._kinds:
            self._check_module_name(node)
        elif not hasattr(builtins, name) or name in _IMPURE_BUILTINS:
            raise _Memory(node, f"uses `{name}`")
        elif name == "getattr" and not self._names_attribute(node):
            raise _Memory(node, "uses `getattr` with a name that is not a literal")

    def _is_self_of_a_call(self, node: ast.AST) -> bool:
        """Whether it is an object of a class whose objects end with the call."""
        if not (isinstance(node, ast.Name) and node.id == "self"):
            return False
        own = self._parents.get(node)
        while own is not None and not isinstance(own, ast.ClassDef):
            own = self._parents.get(own)
        return own is not None and own.name not in _KEPT

    def _check_module_name(self, node: ast.Name) -> None:
        kind = self._kinds[node.id]
        if kind == "function" and isinstance(self._parents[node], ast.Attribute):
            raise _Memory(node, f"uses `{ast.unparse(self._parents[node])}`")
        if kind == "nested" or (kind == "container" and not self._only_reads(node)):
            raise _Memory(node, f"may change `{node.id}`")
        if kind not in {"function", "class", "constant", "container"}:
            self._check_library(node)

    def _check_library(self, node: ast.AST) -> None:
        whole, parent = node, self._parents[node]
        while not self._is_pure(whole):
            if not isinstance(parent, ast.Attribute):
                name = self._full_name(whole)
                is_read = isinstance(getattr(parent, "ctx", None), ast.Load)
                if name == "os.environ" and (is_read or isinstance(parent, ast.Compare)):
                    return
                raise _Memory(node, f"uses `{name}`")
            whole, parent = parent, self._parents[parent]

    def _names_attribute(self, node: ast.AST) -> bool:
        """Whether it is a call of `getattr` with a name that is a public literal."""
        match self._parents[node]:
            case ast.Call(args=[_, ast.Constant(value=str(name)), *_]):
                return not name.startswith("_")
        return False

    def _only_reads(self, node: ast.Name) -> bool:
        """Whether a container is looked at, and not passed on to where it could be changed."""
        match self._parents[node]:
            case ast.Compare() | ast.BinOp() | ast.FormattedValue():
                return True
            case ast.For(iter=part) | ast.comprehension(iter=part):
                return part is node
            case ast.Call(func=func):
                return self._full_name(func) in _READING_CALLS
            case ast.Subscript(ctx=ctx):
                return isinstance(ctx, ast.Load)
            case ast.Attribute(attr=attr):
                return attr in _READING_METHODS
        return False


def _is_value(node: ast.AST) -> bool:
    return isinstance(node, ast.expr | ast.keyword | ast.comprehension)


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a node binds, imports left out."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            return {name}
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return {name}
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return {name}
    return set()
