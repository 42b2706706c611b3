"""Read the source of plugins for templates: whether they leave something behind in their process.

A plugin without memory is functions, classes and constants. What it returns depends on its
arguments, and it changes nothing that a later task of the same process could find: no object of its
module, of its class or of another module, no setting of the process. Anything that is not
recognised counts as memory. Authors of plugins are trusted; this is about what they share by
mistake.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

KINDS = ("filter", "test", "lookup")
"""Kinds of plugins that templates call."""
TRUSTED_COLLECTIONS = frozenset({"kubernetes.core", "operator_sdk.util"})
_KNOWN_NAMESPACES = {
    *("amazon", "ansible", "awx", "azure", "cloud", "community", "containers", "google"),
    *("kubernetes", "openshift", "operator_sdk", "redhat"),
}
"""Namespaces of collections whose plugins for templates are functions without memory."""
_CLASSES = {"FilterModule": "filters", "TestModule": "tests"}
_COLLECTIONS = "ansible_collections"
_PURE_LIBRARIES = (
    *("__future__", "abc", "ast", "base64", "binascii", "collections", "contextlib", "copy"),
    *("dataclasses", "datetime", "difflib", "enum", "fnmatch", "fractions", "gzip", "hashlib"),
    *("hmac", "html", "ipaddress", "itertools", "json", "math", "numbers", "operator", "os.path"),
    *("pathlib", "re", "secrets", "shlex", "statistics", "string", "textwrap", "typing"),
    *("unicodedata", "urllib.parse", "uuid", "zlib"),
    *("ansible.errors", "ansible.module_utils._text", "ansible.module_utils.common.collections"),
    *("ansible.module_utils.common.text", "ansible.module_utils.parsing.convert_bool"),
    *("ansible.module_utils.six", "ansible.plugins.lookup", "ansible.utils.display"),
    "jinja2.exceptions",
)
_PURE_NAMES = {
    *("os.environ.get", "os.getenv", "os.linesep", "os.sep", "os.fspath", "sys.maxsize"),
    *("sys.version_info", "time.gmtime", "time.localtime", "time.mktime", "time.strftime"),
    *("time.strptime", "time.time", "functools.partial", "functools.reduce", "functools.wraps"),
    *("functools.cmp_to_key", "functools.total_ordering", "decimal.Decimal"),
    *("decimal.InvalidOperation", "yaml.YAMLError", "yaml.dump", "yaml.safe_dump"),
    *("yaml.safe_load", "yaml.safe_load_all", "yaml.SafeLoader", "yaml.SafeDumper"),
    *("jinja2.Undefined", "jinja2.pass_context", "jinja2.pass_environment"),
    *("jinja2.pass_eval_context", "jinja2.runtime.Undefined", "jinja2.filters.pass_context"),
    *("jinja2.filters.pass_environment", "jinja2.filters.pass_eval_context"),
}
"""Names of other libraries that neither change their process nor keep anything."""
_PASSES_STATE = ("pass_context", "pass_environment", "pass_eval_context")
_IMPURE_BUILTINS = {
    *("__import__", "breakpoint", "compile", "delattr", "eval", "exec", "exit", "globals"),
    *("help", "input", "locals", "print", "quit", "setattr", "vars"),
}
_FRESH_CALLS = {"dict", "list", "set", "sorted", "bytearray", "copy.deepcopy", "copy.copy"}
_READING_CALLS = {
    *("all", "any", "bool", "dict", "enumerate", "float", "frozenset", "int", "isinstance"),
    *("len", "list", "max", "min", "repr", "set", "sorted", "str", "sum", "tuple"),
}
_READING_METHODS = {"copy", "count", "get", "index", "items", "keys", "union", "values"}
_CHANGING_METHODS = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend"),
    *("extendleft", "insert", "intersection_update", "pop", "popitem", "popleft", "remove"),
    *("reverse", "setdefault", "sort", "symmetric_difference_update", "update", "rotate"),
}
_DUNDERS = {"__init__", "__name__", "__doc__", "__version__"}
_METHODS_OF_LOOKUPS = {
    *("_display", "_flatten", "_get_file_contents", "find_file_in_search_path", "get_basedir"),
    *("get_option", "get_options", "has_option", "set_options", "template", "get_real_file"),
    *("path_dwim", "path_dwim_relative", "path_exists", "is_file", "is_directory", "run"),
}
_DECORATORS = {
    *("abstractmethod", "classmethod", "contextmanager", "dataclass", "property", "staticmethod"),
    *("total_ordering", "wraps", *_PASSES_STATE),
}
_FUNCTIONS = (ast.FunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, *_COMPREHENSIONS)


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
    top = folder / _COLLECTIONS
    if (top / "ansible_release.py").exists():
        return  # the distribution `ansible`
    for kind in KINDS:
        for place in sorted(top.glob(f"*/*/plugins/{kind}")):
            if place.parts[-4] not in _KNOWN_NAMESPACES:
                yield from plugins_in(place, kind)


def read_plugin(path: Path, kind: str) -> Plugin:
    """Read a file of plugins; one that cannot be read or parsed may do anything."""
    names: frozenset[str] | None = frozenset({path.stem}) if kind == "lookup" else None
    try:
        tree = _parse(path)
        if kind != "lookup":
            names = _names(tree)
        _check(path, tree, kind, {path})
    except _Memory as found:
        return Plugin(path, kind, str(found), names, found.when_loaded)
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        return Plugin(path, kind, f"cannot be read: {error}", names, changes_when_loaded=True)
    return Plugin(path, kind, "", names, changes_when_loaded=False)


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def _names(tree: ast.Module) -> frozenset[str] | None:
    """Return the keys of the literal that `filters` or `tests` returns, None if there is none."""
    for each in tree.body:
        if isinstance(each, ast.ClassDef) and each.name in _CLASSES:
            for method in each.body:
                if isinstance(method, ast.FunctionDef) and method.name == _CLASSES[each.name]:
                    last = method.body[-1]
                    keys = last.value.keys if _returns_literal(method, last) else [None]  # type: ignore[attr-defined]
                    names = {getattr(key, "value", None) for key in keys}
                    if all(isinstance(name, str) for name in names):
                        return frozenset(str(name) for name in names)
    return None


def _returns_literal(method: ast.FunctionDef, last: ast.stmt) -> bool:
    returns = [node for node in ast.walk(method) if isinstance(node, ast.Return)]
    return returns == [last] and isinstance(returns[0].value, ast.Dict)


def _check(path: Path, tree: ast.Module, kind: str, seen: set[Path]) -> None:
    """Raise _Memory if the module has memory, or another one of its collection that it imports."""
    module = _Module(path, tree, kind)
    module.load(tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for source in _sources_in_collection(path, node):
                if source not in seen:
                    seen.add(source)
                    _check(source, _parse(source), kind, seen)
    module.check()


def _sources_in_collection(path: Path, node: ast.Import | ast.ImportFrom) -> Iterator[Path]:
    """Yield the files of its own collections that a module imports."""
    if _COLLECTIONS not in path.parts:
        return
    top = Path(*path.parts[: path.parts.index(_COLLECTIONS)])
    for name in _imported(node):
        if name.startswith(f"{_COLLECTIONS}.") and not _is_trusted(name):
            place = top.joinpath(*name.split("."))
            candidates = [place.with_suffix(".py"), place / "__init__.py"]
            candidates += [place.parent.with_suffix(".py"), place.parent / "__init__.py"]
            yield from [each for each in candidates if each.is_file()][:1]


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the full name of each import."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_trusted(name: str) -> bool:
    return ".".join(name.split(".")[1:3]) in TRUSTED_COLLECTIONS


class _Module:
    """What the names of a module are, and how its functions use them."""

    def __init__(self, path: Path, tree: ast.Module, kind: str) -> None:
        self._in_collection = _COLLECTIONS in path.parts
        self._tree = tree
        self._parents = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        self._names: dict[str, str] = {}
        """constant, container, function, class, state, or the full name of what is imported."""
        self._is_strict = kind == "lookup" or any(
            name in ast.unparse(tree) for name in _PASSES_STATE
        )
        """Whether its functions get objects of the play, not copies."""

    def load(self, body: Iterable[ast.stmt]) -> None:
        """Look at what is executed when the module is loaded."""
        for each in body:
            self._load(each)

    def _load(self, each: ast.stmt) -> None:
        if isinstance(each, ast.Import | ast.ImportFrom):
            self._bind_imports(each)
        elif isinstance(each, ast.FunctionDef):
            self._names[each.name] = "function"
        elif isinstance(each, ast.ClassDef):
            self._names[each.name] = "class"
            for base in each.bases:
                self._look_for_calls(base)
            inner = _Module.__new__(_Module)
            inner.__dict__ = {**self.__dict__, "_names": dict(self._names)}
            inner.load(each.body)
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            self._assign(each)
        elif isinstance(each, ast.If):
            if ast.unparse(each.test) not in {"__name__ == '__main__'", "TYPE_CHECKING"}:
                self._classify(each.test)
                self.load(each.body)
            self.load(each.orelse)
        elif isinstance(each, ast.Try):
            handlers = (stmt for handler in each.handlers for stmt in handler.body)
            self.load((*each.body, *handlers, *each.orelse, *each.finalbody))
        elif not isinstance(each, ast.Pass) and not (
            isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
        ):
            raise _Memory(each, "does something when it is loaded", when_loaded=True)

    def _bind_imports(self, each: ast.Import | ast.ImportFrom) -> None:
        for alias, name in zip(each.names, _imported(each), strict=False):
            is_top = isinstance(each, ast.Import) and alias.asname is None
            bound = name.partition(".")[0] if is_top else name
            self._names[alias.asname or bound.rpartition(".")[2]] = bound
        if isinstance(each, ast.ImportFrom) and (each.level or each.names[0].name == "*"):
            raise _Memory(each, f"imports `{ast.unparse(each)}`")

    def _assign(self, each: ast.Assign | ast.AnnAssign) -> None:
        targets = each.targets if isinstance(each, ast.Assign) else [each.target]
        kind = "constant" if each.value is None else self._classify(each.value)
        for target in targets:
            if not isinstance(target, ast.Name):
                what = f"changes `{ast.unparse(target)}` when it is loaded"
                raise _Memory(each, what, when_loaded=True)
            # One that is assigned twice may be either.
            known = self._names.get(target.id, kind)
            self._names[target.id] = kind if known == kind else "state"

    def _classify(self, value: ast.expr) -> str:
        """Return what a value of the module is; loading must not change anything by it."""
        self._look_for_calls(value)
        parts = [part for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr)]
        is_constant = {self._classify(part) for part in parts} <= {"constant", "function", "class"}
        kind = "state"
        if isinstance(value, ast.Constant | ast.JoinedStr | ast.Compare):
            kind = "constant"
        elif isinstance(value, ast.Lambda):
            kind = "function"
        elif isinstance(value, ast.Name):
            builtin = "function" if hasattr(builtins, value.id) else kind
            kind = self._names.get(value.id, builtin)
        elif isinstance(value, ast.Tuple | ast.UnaryOp | ast.BinOp | ast.BoolOp | ast.IfExp):
            kind = "constant" if is_constant else kind
        elif isinstance(value, ast.List | ast.Set | ast.Dict):
            kind = "container" if is_constant else kind
        elif isinstance(value, ast.Attribute) and self._is_pure(value):
            kind = "constant"
        elif isinstance(value, ast.Call):
            called = self._full_name(value.func)
            makes_constant = called in {"re.compile", "frozenset", "collections.namedtuple"}
            kind = "constant" if makes_constant or called.endswith(".Display") else kind
        return kind

    def _look_for_calls(self, value: ast.expr) -> None:
        for call in ast.walk(value):
            if isinstance(call, ast.Call):
                name = self._full_name(call.func)
                if not (self._is_pure(call.func) or name in _READING_CALLS):
                    what = f"calls `{ast.unparse(call.func)}` when it is loaded"
                    raise _Memory(call, what, when_loaded=True)

    def _full_name(self, node: ast.AST) -> str:
        """Return the name with that of its library; that of a builtin or a local as it is."""
        if isinstance(node, ast.Name):
            known = self._names.get(node.id, node.id)
            return node.id if known in {"function", "class", "constant"} else known
        if isinstance(node, ast.Attribute):
            return f"{self._full_name(node.value)}.{node.attr}"
        return ""

    def _is_pure(self, node: ast.AST) -> bool:
        """Whether an expression names something without memory in a library."""
        root = _root(node)
        if not isinstance(root, ast.Name) or root.id not in self._names:
            return False
        name = self._full_name(node)
        if any(part.startswith("_") for part in name.split(".")[1:] if part != "_text"):
            return False
        own = self._in_collection and name.startswith(f"{_COLLECTIONS}.")
        pure = any(name == each or name.startswith(f"{each}.") for each in _PURE_LIBRARIES)
        return own or pure or name in _PURE_NAMES

    def check(self) -> None:
        """Look at each function."""
        nodes = list(ast.walk(self._tree))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._bind_imports(node)
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                self._check_class(node)
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
                self._check_signature(node)
            if self._functions_around(node) and not self._is_main(node):
                self._check_node(node)

    def _is_main(self, node: ast.AST) -> bool:
        while not isinstance(parent := self._parents[node], ast.Module):
            node = parent
        return isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)

    def _check_class(self, node: ast.ClassDef) -> None:
        if node.keywords or isinstance(self._parents[node], ast.FunctionDef):
            raise _Memory(node, f"defines the class `{node.name}` in an unusual way")
        for each in node.body:
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
                kind = self._classify(each.value)
                if kind not in {"constant", "function"}:
                    raise _Memory(each, f"shares `{ast.unparse(each)}` between objects")

    def _check_signature(self, node: ast.FunctionDef | ast.ClassDef | ast.Lambda) -> None:
        args = [] if isinstance(node, ast.ClassDef) else [node.args]
        defaults = [each for arg in args for each in (*arg.defaults, *arg.kw_defaults)]
        for default in filter(None, defaults):
            if self._classify(default) not in {"constant", "function"}:
                raise _Memory(node, f"keeps the default `{ast.unparse(default)}` between calls")
        for decorator in getattr(node, "decorator_list", ()):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self._full_name(called).rpartition(".")[2] not in _DECORATORS:
                raise _Memory(decorator, f"has the decorator `{ast.unparse(called)}`")

    def _functions_around(self, node: ast.AST) -> list[ast.AST]:
        """Return the functions, lambdas and comprehensions that a node is in, innermost first."""
        found: list[ast.AST] = []
        while (parent := self._parents.get(node)) is not None:
            is_inside = not isinstance(parent, _FUNCTIONS) or node in (
                parent.body if isinstance(parent, ast.FunctionDef) else [parent.body]
            )
            if isinstance(parent, _SCOPES) and is_inside:
                found.append(parent)
            node = parent
        return found

    def _check_node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Global | ast.Nonlocal):
            raise _Memory(node, f"changes `{', '.join(node.names)}`")
        if isinstance(node, ast.Attribute):
            self._check_attribute(node)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            self._check_change(node, node.value)
        elif isinstance(node, ast.AugAssign) and self._is_strict:
            self._check_change(node, node.target)
        elif isinstance(node, ast.Name):
            self._check_name(node)

    def _check_attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("__") and node.attr not in _DUNDERS:
            raise _Memory(node, f"uses `{ast.unparse(node)}`")
        if not isinstance(node.ctx, ast.Load):
            if not (_is_self(node.value) and self._keeps_no_objects(node)):
                raise _Memory(node, f"changes `{ast.unparse(node)}`")
        elif node.attr in _CHANGING_METHODS and not self._is_pure(node):
            self._check_change(node, node.value)
        elif _is_self(node.value) and not self._keeps_no_objects(node):
            if node.attr not in self._members_of_class(node):
                raise _Memory(node, f"keeps `{ast.unparse(node)}` between calls")
        elif self._is_strict and _is_self(_root(node)) and isinstance(node.value, ast.Attribute):
            own = self._class_of(node)
            assigned = own and node.value.attr in _assigned_to_self(own)
            if not assigned and node.attr not in _METHODS_OF_LOOKUPS:
                in_display = node.value.attr == "_display"
                if not in_display:
                    raise _Memory(node, f"uses `{ast.unparse(node)}`")

    def _class_of(self, node: ast.AST) -> ast.ClassDef | None:
        while (parent := self._parents.get(node)) is not None:
            if isinstance(parent, ast.ClassDef):
                return parent
            node = parent
        return None

    def _keeps_no_objects(self, node: ast.AST) -> bool:
        """Whether objects of the class end with the call: only those of Jinja's plugins remain."""
        own = self._class_of(node)
        return own is not None and own.name not in _CLASSES

    def _members_of_class(self, node: ast.AST) -> set[str]:
        own = self._class_of(node)
        names: set[str] = set()
        for each in own.body if own else ():
            if isinstance(each, ast.FunctionDef):
                names.add(each.name)
            elif isinstance(each, ast.Assign):
                names |= {target.id for target in each.targets if isinstance(target, ast.Name)}
        return names

    def _check_change(self, node: ast.AST, changed: ast.expr) -> None:
        """Allow changes of objects that end with the call, or are copies for it."""
        root = _root(changed)
        scopes = self._functions_around(node)
        if isinstance(root, ast.Name) and scopes:
            if root.id == "self":
                is_own = self._keeps_no_objects(node)
                is_fresh = self._is_fresh_member(node, changed)
            else:
                is_own = any(_binds(scope, root.id) for scope in _until_function(scopes))
                is_fresh = self._is_fresh(_function_of(scopes), changed)
            if is_own and (is_fresh or not self._is_strict):
                return
        elif (
            isinstance(root, ast.Call) and self._full_name(root.func) in _FRESH_CALLS
        ) or isinstance(root, ast.Constant | ast.List | ast.Dict | ast.Set | ast.ListComp):
            return
        raise _Memory(node, f"changes `{ast.unparse(changed)}`")

    def _is_fresh(self, function: ast.AST, changed: ast.expr) -> bool:
        """Whether a local name has only objects that the function has made."""
        if not isinstance(changed, ast.Name):
            return False
        values = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and any(_binds_name(target, changed.id) for target in node.targets)
        ]
        bindings = sum(
            isinstance(node, ast.Name)
            and node.id == changed.id
            and isinstance(node.ctx, ast.Store)
            and not isinstance(self._parents[node], ast.AugAssign)
            for node in ast.walk(function)
        )
        return bool(values) and bindings == len(values) and all(map(self._makes, values))

    def _is_fresh_member(self, node: ast.AST, changed: ast.expr) -> bool:
        own = self._class_of(node)
        if not (isinstance(changed, ast.Attribute) and _is_self(changed.value) and own):
            return False
        values = _assigned_to_self(own).get(changed.attr, [])
        return bool(values) and all(map(self._makes, values))

    def _makes(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Call):
            return self._full_name(value.func) in _FRESH_CALLS
        literals = ast.Constant | ast.List | ast.Dict | ast.Set
        return isinstance(value, literals | ast.ListComp | ast.DictComp | ast.SetComp)

    def _check_name(self, node: ast.Name) -> None:
        scopes = self._functions_around(node)
        if not isinstance(node.ctx, ast.Load) or any(
            _binds(scope, node.id) for scope in _until_function(scopes)
        ):
            if _is_self(node) and not self._keeps_no_objects(node) and self._class_of(node):
                parent = self._parents[node]
                if not isinstance(parent, ast.Attribute | ast.arguments):
                    raise _Memory(node, "passes on `self`, which is kept between calls")
            return
        if any(_binds(scope, node.id) for scope in scopes):
            if not self._only_reads(node):
                raise _Memory(node, f"keeps `{node.id}` between calls")
        elif node.id in self._names:
            self._check_module_name(node)
        elif node.id in _IMPURE_BUILTINS or not hasattr(builtins, node.id):
            raise _Memory(node, f"uses `{node.id}`")
        elif node.id == "getattr" and not self._names_attribute(node):
            raise _Memory(node, "uses `getattr` with a name that is not a literal")

    def _names_attribute(self, node: ast.AST) -> bool:
        call = self._parents[node]
        if not (isinstance(call, ast.Call) and call.func is node and len(call.args) > 1):
            return False
        name = call.args[1]
        return (
            isinstance(name, ast.Constant)
            and isinstance(name.value, str)
            and not name.value.startswith("_")
            and name.value not in _CHANGING_METHODS
        )

    def _check_module_name(self, node: ast.Name) -> None:
        kind = self._names[node.id]
        if kind == "constant":
            return
        if kind in {"function", "class"}:
            parent = self._parents[node]
            is_constant = isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Load)
            if isinstance(parent, ast.Attribute) and not (kind == "class" and is_constant):
                raise _Memory(node, f"uses `{ast.unparse(parent)}`")
        elif kind == "container":
            if not self._only_reads(node):
                raise _Memory(node, f"may change `{node.id}`")
        elif kind == "state":
            raise _Memory(node, f"uses `{node.id}`, which is kept between calls")
        else:
            self._check_library(node)

    def _check_library(self, node: ast.Name) -> None:
        whole: ast.AST = node
        while True:
            if self._is_pure(whole):
                return
            parent = self._parents[whole]
            if not isinstance(parent, ast.Attribute):
                break
            whole = parent
        name = self._full_name(whole)
        subscripted = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Load)
        compared = isinstance(parent, ast.Compare)
        if name == "os.environ" and (subscripted or compared):
            return
        raise _Memory(node, f"uses `{name}`")

    def _only_reads(self, node: ast.expr) -> bool:
        """Whether an object is looked at, and not passed on to where it could be changed."""
        parent = self._parents[node]
        if isinstance(parent, ast.Compare | ast.BinOp | ast.FormattedValue | ast.For):
            return not (isinstance(parent, ast.For) and node.id not in self._names)  # type: ignore[attr-defined]
        if isinstance(parent, ast.comprehension):
            return isinstance(node, ast.Name) and node.id in self._names
        if isinstance(parent, ast.Call):
            return parent.func is node or self._full_name(parent.func) in _READING_CALLS
        if isinstance(parent, ast.Subscript):
            is_read = isinstance(parent.ctx, ast.Load)
            return parent.slice is node or (is_read and self._is_own_constant(node))
        if isinstance(parent, ast.Attribute):
            is_own = self._is_own_constant(node)
            return is_own and parent.attr in _READING_METHODS
        return False

    def _is_own_constant(self, node: ast.expr) -> bool:
        """Whether the elements of an object are constants of the module."""
        return isinstance(node, ast.Name) and self._names.get(node.id) == "container"


def _root(node: ast.AST) -> ast.AST:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _function_of(scopes: list[ast.AST]) -> ast.AST:
    """Return the innermost function or lambda."""
    return next(scope for scope in scopes if isinstance(scope, _FUNCTIONS))


def _until_function(scopes: list[ast.AST]) -> Iterator[ast.AST]:
    """Yield the comprehensions around a node, and the function that they are in."""
    for scope in scopes:
        yield scope
        if isinstance(scope, _FUNCTIONS):
            return


def _binds_name(target: ast.AST, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def _assigned_to_self(own: ast.ClassDef) -> dict[str, list[ast.expr]]:
    """Return the values that methods of a class assign to each attribute of its objects."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(own):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and _is_self(target.value):
                    values.setdefault(target.attr, []).append(node.value)
    return values


@functools.cache
def _bound(scope: ast.AST) -> frozenset[str]:
    """Return the names that a function or comprehension binds."""
    names: set[str] = set()
    if isinstance(scope, _FUNCTIONS):
        names |= {arg.arg for arg in ast.walk(scope.args) if isinstance(arg, ast.arg)}
        body: list[ast.AST] = list(
            scope.body if isinstance(scope, ast.FunctionDef) else [scope.body]
        )
    else:
        body = [each.target for each in scope.generators]  # type: ignore[attr-defined]
    while body:
        node = body.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif not isinstance(node, _SCOPES):
            body += ast.iter_child_nodes(node)
    return frozenset(names)


def _binds(scope: ast.AST, name: str) -> bool:
    return name in _bound(scope)
