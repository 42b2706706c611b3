"""Find modules, filters, tests and lookups that exist here and in the image of the operator."""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ansible.errors import AnsibleError
from ansible.plugins import loader as loaders
from ansible.plugins.loader import add_all_plugin_dirs, init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.utils.plugin_docs import get_docstring
from jinja2.filters import FILTERS
from jinja2.tests import TESTS

from operator_runner.ansible.templating.hints import suggestion
from operator_runner.core.ansible_modules import Trait, has_trait
from operator_runner.tools.validate.requirements import BASE_IMAGE, FILE, ImageCollections
from operator_runner.tools.validate.values import CORE_MODULES

_BUNDLED = Path(__file__).parents[2] / "collections"
_FQCN_PARTS = 3
_LAST_COLLECTION = "ansible.legacy"
"""Collections that ansible-core searches after those that a role or play lists."""


class Problem(NamedTuple):
    """The reason why a plugin cannot be used, and a hint."""

    message: str
    is_error: bool = True


def start(
    collections: Sequence[Path], role_folders: Iterable[Path], modules: Iterable[Path]
) -> None:
    """Make Ansible's loaders find the collections and plugins that runs find."""
    for folder in modules:
        loaders.module_loader.add_directory(str(folder))
    if str(_BUNDLED) not in sys.path:
        sys.path.append(str(_BUNDLED))
    if AnsibleCollectionConfig.collection_finder is None:  # once in a process
        init_plugin_loader([str(path) for path in collections])
    for folder in role_folders:
        add_directory(folder)


def add_directory(folder: Path) -> None:
    """Make Ansible's loaders find the plugins of a role, or beside a playbook."""
    add_all_plugin_dirs(str(folder))


def location(collection: str) -> Path | None:
    """Return the directory of a collection that is installed, None if it is not."""
    try:
        package = import_module(f"ansible_collections.{collection}")
    except ImportError:
        return None
    return next(map(Path, package.__path__), None)


@dataclass(frozen=True, slots=True)
class Module:
    """A module that exists: its full name, and its parameters if its documentation has them."""

    name: str
    parameters: frozenset[str] | None


class Plugins:
    """Answers for one project."""

    def __init__(self, image: ImageCollections) -> None:
        """Compare with the collections that the image has."""
        self._image = image

    def module(self, name: str, collections: Sequence[str] = ()) -> Module | Problem:
        """Return a module or an action."""
        if problem := self._missing_collection("module", name):
            return problem
        for loader in (loaders.action_loader, loaders.module_loader):
            try:
                found = _found(loader, name, collections)
            except AnsibleError as error:  # the collection has removed it
                return Problem(error.message.rstrip("."))
            if found.resolved and found.plugin_resolved_path:
                problem = self._not_in_image("module", name, found.plugin_resolved_collection)
                return problem or Module(
                    found.resolved_fqcn or name, _parameters(name, collections)
                )
        full = next((each for each in sorted(_module_names()) if each.endswith(f".{name}")), "")
        hint = f": write {full}" if full else suggestion(name, _module_names())
        return Problem(f"unknown module {name}{hint}")

    def filter(self, name: str) -> Problem | None:
        """Return why a filter cannot be used, None if it can."""
        return self._jinja_plugin("filter", name, FILTERS, loaders.filter_loader)

    def test(self, name: str) -> Problem | None:
        """Return why a test cannot be used, None if it can."""
        return self._jinja_plugin("test", name, TESTS, loaders.test_loader)

    def lookup(self, name: str) -> Problem | None:
        """Return why a lookup cannot be used, None if it can."""
        if problem := self._missing_collection("lookup", name):
            return problem
        found = loaders.lookup_loader.find_plugin_with_context(name)
        if not found.resolved:
            names = [Path(path).stem for path in loaders.lookup_loader.all(path_only=True)]
            return Problem(f"unknown lookup {name}{suggestion(name, names)}")
        return self._not_in_image("lookup", name, found.plugin_resolved_collection)

    def collection(self, name: str) -> Problem | None:
        """Return why a collection cannot be used, None if it can."""
        return (
            self._not_in_image("role", f"{name}.x", name)
            if location(name)
            else (self._missing_collection("role", f"{name}.x"))
        )

    def _jinja_plugin(
        self, kind: str, name: str, builtin: Collection[str], loader: Any
    ) -> Problem | None:
        if name in builtin:
            return None
        if problem := self._missing_collection(kind, name):
            return problem
        try:
            found = loader.get_with_context(name)
        except KeyError:
            found = None
        if found is None or found.object is None:
            names = {*builtin, *(each.ansible_name.rpartition(".")[2] for each in loader.all())}
            return Problem(f"unknown {kind} {name}{suggestion(name, names)}")
        return self._not_in_image(kind, name, found.plugin_load_context.plugin_resolved_collection)

    def _missing_collection(self, kind: str, name: str) -> Problem | None:
        parts = name.split(".")
        collection = ".".join(parts[:2])
        if len(parts) < _FQCN_PARTS or collection in BASE_IMAGE or location(collection):
            return None
        if collection in self._image:
            hint = f"install it with `ansible-galaxy collection install -r {FILE}`"
            message = f"plugins of {collection} are not checked, it is not installed here"
            return Problem(f"{message}; {hint}", is_error=False)
        hint = suggestion(name, _module_names()) if kind == "module" else ""
        hint = hint or f"; add `- name: {collection}` to the collections of {FILE}"
        return Problem(f"unknown {kind} {name}: there is no collection {collection}{hint}")

    def _not_in_image(self, kind: str, name: str, collection: str | None) -> Problem | None:
        if not collection or collection in self._image:
            return None
        folder = location(collection)
        if folder is None:
            return None
        is_of_distribution = (folder.parent.parent / "ansible_release.py").exists()
        return Problem(
            f"{kind} {name} is not in the image: the base image has no collection {collection}; "
            f"add `- name: {collection}` to the collections of {FILE}",
            is_error=is_of_distribution,
        )


def unknown_parameters(module: Module, arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each argument that the module does not have, and the message."""
    if module.parameters is None or has_trait(module.name, Trait.FREE_ARGUMENTS):
        return
    for name in arguments:
        if name not in module.parameters and not name.startswith("_"):
            hint = suggestion(name, module.parameters)
            yield name, f"module {module.name} has no parameter {name}{hint}"


def _found(loader: Any, name: str, collections: Sequence[str]) -> Any:
    searched = [*collections, _LAST_COLLECTION] if collections else None
    return loader.find_plugin_with_context(name, collection_list=searched)


def _parameters(name: str, collections: Sequence[str]) -> frozenset[str] | None:
    found = _found(loaders.module_loader, name, collections)
    if not found.resolved or not found.plugin_resolved_path:
        return None
    return _documented_parameters(
        found.plugin_resolved_path, found.plugin_resolved_collection or None
    )


@functools.cache
def _documented_parameters(path: str, collection: str | None) -> frozenset[str] | None:
    """Return the parameters in the documentation, None without a valid one of the Python kind.

    A module runs with any documentation, in any language.
    """
    beside = Path(path).with_suffix(".yml")
    try:
        document = get_docstring(
            str(beside) if beside.exists() else path,
            loaders.fragment_loader,
            collection_name=collection,
            plugin_type="module",
        )[0]
        options = (document or {}).get("options")
        if not options or "free_form" in options:
            return None
        aliases = {alias for each in options.values() for alias in each.get("aliases") or ()}
        return frozenset(map(str, {*options, *aliases}))
    except (AnsibleError, AttributeError, LookupError, TypeError, ValueError):
        return None


@functools.cache
def _module_names() -> frozenset[str]:
    """Return the modules of the base image, those of ansible-core with their short names too."""
    names = {*CORE_MODULES, *(f"ansible.builtin.{name}" for name in CORE_MODULES)}
    for collection in ("kubernetes.core", "operator_sdk.util"):
        folder = location(collection)
        for path in (folder / "plugins" / "modules").glob("*.py") if folder else ():
            names.add(f"{collection}.{path.stem}")
    return frozenset(name for name in names if not name.rpartition(".")[2].startswith("_"))
