"""Find the modules that can run in a fork, by ansible-core's own rules and by their source."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible import constants, modules
from ansible import module_utils as core
from ansible.executor import module_common
from ansible.plugins.loader import module_utils_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A new-style Python module."""

    name: str
    """Dotted name to import it by."""
    path: str
    open_files: int
    """Soft limit of open files that it is to have; 0 leaves it as it is."""
    utils: tuple[str, ...]
    """Directories of `ansible.module_utils`, in the order of the search."""
    environment: Mapping[str, str] = field(compare=False)
    """Variables that the task adds to the environment."""
    profile: str = "legacy"
    """ansible-core's name for the encoding of arguments and result."""


_IN_COLLECTION = re.compile(r"/(ansible_collections/[^/.]+/[^/.]+/plugins/modules/[^.]+)\.py$")
_same: set[str] = set()
"""Interpreters elsewhere that are this one under other names, with the same libraries."""


def learn_interpreters(candidates: Iterable[Path] | None = None) -> None:
    """Find other names of this interpreter with the same libraries; default: those in /usr/bin.

    In the image they are: inventories of existing projects name /usr/bin/python3.12.
    """
    libraries = {path for path in sys.path if path.endswith("site-packages")}
    for path in candidates or Path("/usr/bin").glob("python3*"):
        if not path.exists() or not path.samefile(sys.executable):
            continue
        ask = [str(path), "-c", "import sys; print(*sys.path, sep='\\n')"]
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
        if libraries <= set(done.stdout.splitlines()):
            _same.add(str(path))


def find_module(
    action: Any, name: str, task_vars: dict[str, Any], environment: Mapping[str, str]
) -> ModuleFile | None:
    """Return the module that the task means, if a fork of this process can run it."""
    found = action._shared_loader_obj.module_loader.find_plugin_with_context(
        name, "", collection_list=action._task.collections
    )
    path = found.plugin_resolved_path if found.resolved else None
    if not path or not path.endswith(".py"):
        return None
    interpreter = _interpreter(action, path, task_vars)
    if interpreter is None or not _is_this_interpreter(interpreter):
        return None
    limit = constants.config.get_config_value("PYTHON_MODULE_RLIMIT_NOFILE", variables=task_vars)
    folders = _module_utils()
    if not isinstance(limit, int) or folders is None:
        return None
    module = ModuleFile(_dotted_name(path), path, limit, folders, environment)
    return module if _finds_its_utils(module) else None


def _module_utils() -> tuple[str, ...] | None:
    """Return the directories of `ansible.module_utils`; None if one hides what is loaded."""
    ours = os.path.dirname(str(core.__file__))  # noqa: PTH120
    others = [
        folder
        for folder in module_utils_loader._get_paths(subdirs=False)
        if folder != ours and os.path.isdir(folder)  # noqa: PTH112
    ]
    for folder in others:
        names = {entry.removesuffix(".py") for entry in os.listdir(folder)}  # noqa: PTH208
        if any(f"{core.__name__}.{name}" in sys.modules for name in names):
            return None
    return (*others, ours)


def _interpreter(action: Any, path: str, task_vars: dict[str, Any]) -> str | None:
    """Return the interpreter that ansible-core would take, None for other kinds of modules."""
    source = Path(path).read_bytes()
    if b"\0" in source or module_common.REPLACER in source:
        return None
    if not module_common.NEW_STYLE_PYTHON_MODULE_RE.search(source):
        return None
    if constants.config.get_config_value("_MODULE_METADATA"):
        return None
    host = action._task.delegate_to
    use_vars = task_vars["ansible_delegated_vars"][host] if host else task_vars
    first, _, _ = source.partition(b"\n")
    declared = os.fsdecode(first[2:].strip()) if first.startswith(b"#!") else "python"
    name = os.path.basename(declared)  # noqa: PTH119
    if name == "python":
        return _python(action, use_vars)
    return None if f"ansible_{name}_interpreter" in use_vars else declared


def _python(action: Any, task_vars: dict[str, Any]) -> str | None:
    """Return the interpreter of the inventory; None before ansible-core has discovered it."""
    setting = constants.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars)
    if str(setting).replace(" ", "") == "{{ansible_playbook_python}}":  # saves rendering it
        return str(task_vars["ansible_playbook_python"])
    interpreter = str(action._templar.template(setting) or "auto").strip()
    if not interpreter.startswith("auto"):
        return interpreter
    facts: dict[str, str] = task_vars.get("ansible_facts", {})
    return facts.get("discovered_interpreter_python")


def _is_this_interpreter(path: str) -> bool:
    here = sys.executable
    # Links within one bin/ are one interpreter; a virtual environment's is not what it links to.
    return path in {here, *_same} or (
        os.path.dirname(path) == os.path.dirname(here)  # noqa: PTH120
        and os.path.exists(path)  # noqa: PTH110
        and os.path.samefile(path, here)  # noqa: PTH121
    )


@functools.cache
def _finds_its_utils(module: ModuleFile) -> bool:
    """Return whether all support code that the module imports exists.

    If some is missing, or the module is not Python, ansible-core reports it before the run.
    """
    if module.name in sys.modules or module.name.startswith("ansible.modules."):
        return True
    try:
        tree = ast.parse(Path(module.path).read_bytes())
    except SyntaxError:
        return False
    finder = module_common.ModuleDepFinder(module.name, tree)
    needed = set(finder.submodules) - set(finder.optional_imports)
    return all(_is_there(parts, module.utils) for parts in needed)


def _is_there(parts: tuple[str, ...], folders: tuple[str, ...]) -> bool:
    if parts[:2] == ("ansible", "module_utils"):
        roots = [Path(folder) for folder in folders]
        parts = parts[2:]
    else:
        roots = [
            Path(path) for path in AnsibleCollectionConfig.collection_finder._n_collection_paths
        ]
    # The last part may be a name in the module before it.
    return any(
        _is_module(root.joinpath(*some)) for root in roots for some in (parts, parts[:-1]) if some
    )


def _is_module(path: Path) -> bool:
    return path.with_name(f"{path.name}.py").is_file() or (path / "__init__.py").is_file()


def _dotted_name(path: str) -> str:
    """Return the name to import a module by; that of a role or `library/` has ansible-core's."""
    found = _IN_COLLECTION.search(path)
    if found is not None:
        return found[1].replace("/", ".")
    is_core = path.startswith(f"{modules.__path__[0]}/")
    return f"ansible.{'modules' if is_core else 'legacy'}.{Path(path).stem}"
