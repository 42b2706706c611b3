"""Read what the tasks of a file use and define, from what Ansible's loader has parsed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.errors import AnsibleError
from ansible.playbook.block import Block
from ansible.playbook.handler import Handler
from ansible.playbook.play import Play
from ansible.release import __version__
from jinja2 import Environment, TemplateSyntaxError

from operator_runner.ansible.templating.hints import nearest, suggestion
from operator_runner.tools.validate import conditions, expressions
from operator_runner.tools.validate.findings import PlacedMessage
from operator_runner.tools.validate.values import (
    CORE_MODULES,
    has_marks,
    key_values,
    listed,
    mapping,
    old_action,
    short_name,
    texts,
    waiting,
)

_BLOCKS = ("block", "rescue", "always")
_CONDITIONS = {"when", "failed_when", "changed_when", "until"}
_TASK_LISTS = ("pre_tasks", "tasks", "post_tasks", "handlers")
_TASK_KEYWORDS = frozenset(Handler.fattributes) | {"args"}
_BLOCK_KEYWORDS = frozenset(Block.fattributes)
_PLAY_KEYWORDS = frozenset(Play.fattributes) | {"user", "vars_prompt"}
_DELIMITERS = ("variable_start_string", "block_start_string", "comment_start_string")


@dataclass(frozen=True, slots=True)
class Expression:
    """A template; `is_bare`: without delimiters, as `when` has it."""

    text: str
    is_bare: bool = False
    aliases: Mapping[str, expressions.Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContentReference:
    """A file or role that a task names: tasks, vars, role, template, file or playbook."""

    kind: str
    name: str
    other_syntax: bool = False
    """Whether the task gives a template other delimiters."""


@dataclass(frozen=True, slots=True)
class Action:
    """A module with the names of its arguments."""

    name: str
    arguments: tuple[str, ...]
    collections: tuple[str, ...]


@dataclass(slots=True)
class Content:
    """Names that one file uses and defines. Texts have their locations, see `findings`."""

    problems: list[PlacedMessage] = field(default_factory=list)
    expressions: list[Expression] = field(default_factory=list)
    references: list[ContentReference] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)
    conditions: list[Any] = field(default_factory=list)
    registered: set[str] = field(default_factory=set)
    defines: set[str] = field(default_factory=set)
    declares: set[str] = field(default_factory=set)
    """Options of an argument spec: fields of the CRD, or variables that something else sets."""
    is_open: bool = False
    """Whether it defines variables whose names are not literal."""


class TaskReader:
    """Reads one file into `content`."""

    def __init__(self, environment: Environment, collections: tuple[str, ...] = ()) -> None:
        """Parse loops with this environment; `collections` are searched for short names."""
        self.content = Content()
        self._environment = environment
        self._collections = collections

    def playbook(self, data: Any) -> None:
        """Read the plays of a playbook."""
        given = self._collections
        for play in self._maps(data, "a playbook must be a list of plays"):
            self._collections = (*map(str, listed(play.get("collections"))), *given)
            if name := play.get("import_playbook") or play.get("ansible.builtin.import_playbook"):
                self._refer("playbook", name)
                continue
            self._unknown_keywords(play, _PLAY_KEYWORDS, "play")
            self._warn(waiting(play))
            self.variables(play.get("vars"))
            for prompt in map(mapping, listed(play.get("vars_prompt"))):
                self.content.defines |= {str(prompt["name"])} if "name" in prompt else set()
            for name in listed(play.get("vars_files")):
                self._refer("vars", name)
            for role in listed(play.get("roles")):
                self._role_of_play(role)
            for key in _TASK_LISTS:
                self.tasks(play.get(key))

    def tasks(self, data: Any, aliases: Mapping[str, expressions.Path] | None = None) -> None:
        """Read a list of tasks and blocks."""
        for task in self._maps(data, "the file must contain a list of tasks"):
            if any(key in task for key in _BLOCKS):
                self._block(task, aliases or {})
            else:
                self._task(task, aliases or {})

    def variables(self, data: Any) -> None:
        """Read a map of variables."""
        if data is None:
            return
        if not isinstance(data, dict):
            self._fail(data, "variables must be a map")
            return
        self.content.defines |= {str(name) for name in data}
        self._expressions(data, {})

    def _maps(self, data: Any, message: str) -> Iterator[dict[Any, Any]]:
        if data is None:
            return
        for each in data if isinstance(data, list) else [data]:
            if isinstance(data, list) and isinstance(each, dict):
                yield each
            else:
                self._fail(each, message)

    def _block(self, block: dict[str, Any], aliases: Mapping[str, expressions.Path]) -> None:
        self._unknown_keywords(block, _BLOCK_KEYWORDS, "block")
        self._warn(waiting(block))
        for key in _BLOCKS:
            self.tasks(block.get(key), aliases)
        self._keywords({key: each for key, each in block.items() if key not in _BLOCKS}, aliases)

    def _task(self, task: dict[str, Any], aliases: Mapping[str, expressions.Path]) -> None:
        aliases = {**aliases, **self._loop(task)}
        keys = [key for key in task if not _is_keyword(key)]
        if {"action", "local_action"} & set(task):
            action, arguments = old_action(task.get("action") or task["local_action"])
        elif not keys:
            self._fail(task, "the task has no module")
            return
        else:
            action = self._module_among(keys)
            arguments = task[action]
        if isinstance(arguments, str):
            try:
                arguments = key_values(action, arguments)
            except AnsibleError as error:
                self._fail(task, str(error.message))
        self._warn(conditions.of_task(task, short_name(str(action)), arguments))
        self._warn(waiting(task, short_name(str(action))))
        given = arguments if isinstance(arguments, dict) else {}
        given = {**given, **(task["args"] if isinstance(task.get("args"), dict) else {})}
        if isinstance(action, str) and not has_marks(action):
            names = tuple(name for name in given if isinstance(name, str))
            collections = (*map(str, listed(task.get("collections"))), *self._collections)
            self.content.actions.append(Action(action, names, collections))
            self._special(short_name(action), given, arguments)
        self._keywords({key: each for key, each in task.items() if key not in keys}, aliases)
        self._arguments(short_name(str(action)), given or arguments, aliases)

    def _module_among(self, keys: list[Any]) -> Any:
        """Return the key that is the module: with a dot, of Ansible, or unlike a keyword."""
        action = max(keys, key=lambda key: ("." in str(key), key in CORE_MODULES))
        if len(keys) > 1 and "." not in str(action) and action not in CORE_MODULES:
            similar = [key for key in keys if nearest(str(key), _TASK_KEYWORDS) is None]
            action = (similar or keys)[0]
        for key in keys:
            if key is not action:
                message = f"'{key}' is not a keyword of a task"
                other = f"; the task already has the module {action}"
                hint = suggestion(str(key), _TASK_KEYWORDS, other)
                self._fail(key, message + hint)
        return action

    def _special(self, action: str, given: dict[str, Any], arguments: Any) -> None:
        """Read modules that define variables or name files."""
        match action:
            case "set_fact":
                self.content.defines |= {str(name) for name in given if not has_marks(name)}
                self.content.is_open |= not given or any(map(has_marks, given))
            case "set_stats" if isinstance(given.get("data"), dict):
                self.content.defines |= set(map(str, given["data"]))
            case "include_vars":
                self._included_variables(given, arguments)
            case "include":  # removed from ansible-core: its file is read as before
                self.content.defines |= set(map(str, given))
                self._refer("tasks", given.get("_raw_params") or arguments)
            case _:
                self._files(action, given)

    def _included_variables(self, given: dict[str, Any], arguments: Any) -> None:
        name = given.get("file") or given.get("_raw_params")
        name = name or (arguments if isinstance(arguments, str) else None)
        self.content.is_open |= "dir" in given or (has_marks(name) and "/" in str(name))
        self.content.defines |= {str(given["name"])} if "name" in given else set()
        self._refer("vars", name)

    def _files(self, action: str, given: dict[str, Any]) -> None:
        match action:
            case "include_tasks" | "import_tasks":
                self._refer("tasks", given.get("file") or given.get("_raw_params"))
            case "include_role" | "import_role":
                if given.get("tasks_from") is None:
                    self._refer("role", given.get("name") or given.get("role"))
            case "template":
                other = any(name in given for name in _DELIMITERS)
                self._refer("template", given.get("src"), other_syntax=other)
            case "copy" if given.get("remote_src") in (None, False):
                self._refer("file", given.get("src"))
            case "kubernetes.core.k8s" | "k8s":
                self._refer("file", given.get("src"))
                for each in listed(given.get("template")):
                    options = each if isinstance(each, dict) else {"path": each}
                    other = any(name in options for name in _DELIMITERS)
                    self._refer("template", options.get("path"), other_syntax=other)
            case _:
                pass

    def _loop(self, task: dict[str, Any]) -> dict[str, expressions.Path]:
        """Return what the variable of a loop over a path is, and note what loops define."""
        control = task.get("loop_control")
        control = control if isinstance(control, dict) else {}
        self._conditions(control.get("break_when"), aliases={})
        names = {str(control[key]) for key in ("loop_var", "index_var") if key in control}
        self.content.defines |= names
        self.content.lookups += [key[5:] for key in task if str(key).startswith("with_")]
        loop = task.get("loop", task.get("with_items"))
        if not isinstance(loop, str) or not has_marks(loop):
            return {}
        try:
            path = expressions.path_of(self._environment, loop)
        except TemplateSyntaxError:
            return {}  # reported with the expression
        return {str(control.get("loop_var", "item")): (*path, expressions.ITEM)} if path else {}

    def _keywords(self, keywords: dict[str, Any], aliases: Mapping[str, expressions.Path]) -> None:
        variables = keywords.get("vars")
        if isinstance(variables, dict):
            self.content.defines |= {str(name) for name in variables}
        self._register(keywords.get("register"))
        for key, value in keywords.items():
            if key in _CONDITIONS:
                self._conditions(value, aliases)
            else:
                self._expressions(
                    value, aliases, is_bare=key == "register" and isinstance(value, dict)
                )

    def _register(self, names: Any) -> None:
        """Note the variable of a result, or those of a map of names to expressions."""
        if isinstance(names, str):
            self.content.registered.add(names)
            self.content.defines.add(names)
        elif isinstance(names, dict):
            self.content.defines |= {str(name) for name in names}
            if Handler.fattributes["register"].isa == "string":
                message = f"a map as `register` needs ansible-core 2.21, not {__version__}"
                self._fail(names, f"{message}: write the name of a variable")

    def _conditions(self, value: Any, aliases: Mapping[str, expressions.Path]) -> None:
        self.content.conditions += listed(value)
        self._expressions(value, aliases, is_bare=True)

    def _arguments(
        self, action: str, arguments: Any, aliases: Mapping[str, expressions.Path]
    ) -> None:
        bare = {"debug": "var"}.get(action)
        if not isinstance(arguments, dict):
            self._expressions(arguments, aliases)
            return
        for name, value in arguments.items():
            self._expressions(name, aliases)
            if (action, name) == ("assert", "that"):
                self._conditions(value, aliases)
            else:
                self._expressions(value, aliases, is_bare=name == bare)

    def _expressions(
        self, value: Any, aliases: Mapping[str, expressions.Path], *, is_bare: bool = False
    ) -> None:
        for text in texts(value):
            if has_marks(text):
                self.content.expressions.append(Expression(text, aliases=aliases))
            elif is_bare:
                self.content.expressions.append(Expression(text, is_bare=True, aliases=aliases))

    def _role_of_play(self, role: Any) -> None:
        name = role.get("role") or role.get("name") if isinstance(role, dict) else role
        if isinstance(role, dict):
            self.variables(role.get("vars"))
            self.content.defines |= {str(key) for key in role}
        self._refer("role", name)

    def _refer(self, kind: str, name: Any, *, other_syntax: bool = False) -> None:
        if isinstance(name, str) and name:
            self.content.references.append(ContentReference(kind, name, other_syntax))

    def _unknown_keywords(self, found: dict[str, Any], known: frozenset[str], what: str) -> None:
        for key in found:
            if key not in known:
                hint = suggestion(str(key), known, "; remove it")
                self._fail(key, f"'{key}' is not a keyword of a {what}{hint}")

    def _fail(self, value: Any, message: str) -> None:
        self.content.problems.append((value, message, True))

    def _warn(self, found: Iterable[tuple[Any, str]]) -> None:
        self.content.problems += ((value, message, False) for value, message in found)


def _is_keyword(key: Any) -> bool:
    return key in _TASK_KEYWORDS or str(key).startswith("with_")
