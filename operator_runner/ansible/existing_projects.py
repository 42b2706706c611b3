"""Patch ansible-core: projects for images with ansible-core 2.18 work, also outside of an image.

Until kubernetes.core 5.2, the action plugin of `k8s` reads `template: FILE` itself and passes the
text to `Templar.do_template`. Since 2.19 ansible-core returns it as it is, because nothing marks it
as a template. A version that cannot work at all is left out; see `core.older_collections`.

Playbooks name roles that the image has: `/opt/ansible/roles/web`, or `web` in `playbooks/site.yml`,
because its ansible.cfg has `/opt/ansible/roles` in `roles_path`. They are found in the project.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible._internal._templating._jinja_bits import (
    _TEMPLATE_OVERRIDE_FIELD_NAMES,
    TemplateOverrides,
)
from ansible.errors import AnsibleError
from ansible.template import trust_as_template

from operator_runner.ansible.patches.replacing import wrap
from operator_runner.core.image_paths import PROJECT, project_roles
from operator_runner.core.older_collections import replaced_by_bundled

_RENDER_FILES = tuple(
    f"ansible_collections.{name}.plugins.action."
    for name in ("kubernetes.core", "community.kubernetes", "community.okd", "redhat.openshift")
)
"""Action plugins that pass the content of a file. Others may pass data of a resource."""
_CALLER = 2
"""Frames between a function that `wrap` calls and the caller of the original."""
_TURBO = "ENABLE_TURBO_MODE"


def install() -> None:
    """Change ansible-core in this process and its forks."""
    wrap("ansible.template:Templar.do_template", _do_template)
    wrap(
        "ansible.utils.collection_loader._collection_finder:"
        "_AnsibleCollectionPkgLoaderBase._get_candidate_paths",
        _candidate_paths,
    )
    wrap("ansible.playbook.task:Task._post_validate_environment", _environment)
    wrap("ansible.playbook.role.definition:RoleDefinition._load_role_path", _role_path)


def has_package(name: str) -> bool:
    """Return whether this Python has a package."""
    return importlib.util.find_spec(name) is not None


def _do_template(
    original: Callable[..., Any], templar: Any, data: Any, *args: Any, **kwargs: Any
) -> Any:
    caller = sys._getframe(_CALLER).f_globals.get("__name__", "")
    if not isinstance(data, str) or not caller.startswith(_RENDER_FILES):
        return original(templar, data, *args, **kwargs)
    # The plugin sets delimiters in the environment, where ansible-core no longer looks for them.
    environment = templar._engine.environment
    changed = {}
    for name in _TEMPLATE_OVERRIDE_FIELD_NAMES:
        value, default = getattr(environment, name), getattr(TemplateOverrides.DEFAULT, name)
        if value != default:
            changed[name] = value
            setattr(environment, name, default)
    if changed:
        kwargs["overrides"] = {**(kwargs.get("overrides") or {}), **changed}
    return original(templar, trust_as_template(data), *args, **kwargs)


def _candidate_paths(original: Callable[..., list[str]], loader: Any, paths: list[str]) -> Any:
    found = map(Path, original(loader, paths))
    collection = ".".join(loader._split_name[1:])
    return list(map(str, replaced_by_bundled(collection, found, has_package)))


def _role_path(original: Callable[..., Any], definition: Any, name: str) -> Any:
    """Return name and path of a role; in the project if ansible-core does not find it."""
    try:
        return original(definition, name)
    except AnsibleError:
        project = os.environ.get(PROJECT)
        for path in project_roles(name, Path(project)) if project else ():
            if path.is_dir():
                return path.name, str(path)
        raise


def _environment(original: Callable[..., Any], task: Any, *args: Any) -> Any:
    """Remove the switch of turbo mode, whose processes cannot start with ansible-core 2.19."""
    environment = original(task, *args)
    environment.pop(_TURBO, None)
    return environment
