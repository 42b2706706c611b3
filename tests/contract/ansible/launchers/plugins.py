"""One plugin of each kind, which returns its owner; `plugin_files` arranges them as a user does."""

from __future__ import annotations

_FILTER = """
class FilterModule:
    def filters(self):
        return {"OWN_filter": lambda value: f"OWN filter of {value}"}
"""

_TEST = """
class TestModule:
    def tests(self):
        return {"OWN_even": lambda value: int(value) % 2 == 0}
"""

_LOOKUP = """
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        return [f"OWN lookup of {term} for {variables['who']}" for term in terms]
"""

_ACTION = """
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        done = self._execute_module(
            module_name="ansible.builtin.ping",
            module_args={"data": "OWN action for " + task_vars["who"]},
            task_vars=task_vars,
        )
        result.update(done)
        return result
"""

_CALLBACK = """
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = '''
name: OWN_callback
type: aggregate
short_description: reports starts
description: Reports starts.
'''


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "OWN_callback"
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_play_start(self, play):
        self._display.display(f"OWN callback: {play.get_name()}")

    def v2_runner_on_ok(self, result):
        self._display.display(f"OWN callback: {result.task_name} is ok")
"""

_VARS = """
from ansible.plugins.vars import BaseVarsPlugin

DOCUMENTATION = '''
name: OWN_vars
short_description: one variable
description: One variable.
options:
  stage:
    ini: [{key: stage, section: OWN_vars}]
    default: all
extends_documentation_fragment: [vars_plugin_staging]
'''


class VarsModule(BaseVarsPlugin):
    REQUIRES_ENABLED = False

    def get_vars(self, loader, path, entities):
        super().get_vars(loader, path, entities)
        return {"OWN_var": "OWN vars"}
"""

_MODULE = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from UTILS.OWN_util import words


def main():
    module = AnsibleModule({"name": {"type": "str", "required": True}}, supports_check_mode=True)
    module.exit_json(changed=True, said=words("OWN module", module.params["name"]))


if __name__ == "__main__":
    main()
"""

_UTIL = """
def words(*parts):
    return " ".join(parts)
"""

_FILES = {
    "filter_plugins/OWN_filters.py": _FILTER,
    "test_plugins/OWN_tests.py": _TEST,
    "lookup_plugins/OWN_lookup.py": _LOOKUP,
    "action_plugins/OWN_action.py": _ACTION,
    "library/OWN_module.py": _MODULE,
    "library/OWN_action.py": "#!/usr/bin/python\n",
    "module_utils/OWN_util.py": _UTIL,
}
_WHOLE_PLAY = {
    "callback_plugins/OWN_callback.py": _CALLBACK,
    "vars_plugins/OWN_vars.py": _VARS,
}
_IN_COLLECTIONS = {
    "filter_plugins": "plugins/filter",
    "test_plugins": "plugins/test",
    "lookup_plugins": "plugins/lookup",
    "action_plugins": "plugins/action",
    "callback_plugins": "plugins/callback",
    "vars_plugins": "plugins/vars",
    "library": "plugins/modules",
    "module_utils": "plugins/module_utils",
}

TASKS = """
- name: OWN Filter
  debug: {msg: "{{ who | PREOWN_filter }} {{ 4 is PREOWN_even }} {{ 3 is PREOWN_even }}"}
- name: OWN Lookup
  debug: {msg: "{{ lookup('PREOWN_lookup', 'x') }} {{ query('PREOWN_lookup', 'y', 'z') }}"}
- name: OWN Module
  PREOWN_module: {name: '{{ who }}'}
- name: OWN Action
  PREOWN_action:
"""


def plugin_files(
    own: str, folder: str, *, whole_play: bool = False, names: dict[str, str] | None = None
) -> dict[str, str]:
    """Return plugins named after `own` in `folder`, the directory of a role or a playbook.

    `whole_play` adds those that Ansible does not look for in roles. `names` renames the
    subdirectories.
    """
    utils = "ansible.module_utils"
    files = {**_FILES, **(_WHOLE_PLAY if whole_play else {})}
    return {
        _placed(path, folder, names or {}).replace("OWN", own): text.replace("OWN", own).replace(
            "UTILS", utils
        )
        for path, text in files.items()
    }


def collection_files(own: str, folder: str) -> dict[str, str]:
    """Return the collection acme.`own` below `folder`, a directory of ansible_collections."""
    root = f"{folder}/ansible_collections/acme/{own}"
    utils = f"ansible_collections.acme.{own}.plugins.module_utils"
    files = {
        _placed(path, root, _IN_COLLECTIONS).replace("OWN", own): text
        for path, text in {**_FILES, **_WHOLE_PLAY}.items()
    }
    files = {path: text.replace("OWN", own).replace("UTILS", utils) for path, text in files.items()}
    return {
        **files,
        f"{root}/galaxy.yml": f"namespace: acme\nname: {own}\nversion: 1.0.0\n",
        f"{root}/meta/runtime.yml": "requires_ansible: '>=2.10'\n",
        f"{root}/roles/inside/tasks/main.yml": tasks_of(own, f"acme.{own}."),
    }


def tasks_of(own: str, prefix: str = "") -> str:
    """Return tasks that use each plugin once."""
    return TASKS.replace("PRE", prefix).replace("OWN", own)


def _placed(path: str, folder: str, names: dict[str, str]) -> str:
    kind, _, name = path.partition("/")
    return f"{folder}/{names.get(kind, kind)}/{name}".lstrip("/")
