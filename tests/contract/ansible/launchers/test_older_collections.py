"""Collections that projects pin, in versions that were written for ansible-core 2.18."""

from __future__ import annotations

import json
from pathlib import Path

from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.launching import Both, Launchers
from tests.contract.ansible.launchers.projects import Project

# As in kubernetes.core 5.2 and before: the plugin reads the file and sets delimiters itself.
_ACTION = """
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        with open(self._find_needle("templates", arguments.pop("template"))) as file:
            content = file.read()
        for name in ("variable_start_string", "variable_end_string"):
            if name in arguments:
                setattr(self._templar.environment, name, arguments.pop(name))
        self._templar.available_variables = dict(task_vars)
        arguments["definition"] = self._templar.do_template(
            content, preserve_trailing_newlines=True, escape_backslashes=False
        )
        return self._execute_module(
            module_name=self._task.action, module_args=arguments, task_vars=task_vars
        )
"""
_MODULE = """#!/usr/bin/python
import os
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule({"definition": {"type": "raw"}})
    turbo = os.environ.get("ENABLE_TURBO_MODE")
    module.exit_json(own=True, definition=module.params["definition"], turbo=turbo)


if __name__ == "__main__":
    main()
"""

_FILTER = """
class FilterModule:
    def filters(self):
        return {"cut": lambda value: f"cut {value}"}
"""


def _collection(name: str, version: str, **plugins: str) -> dict[str, str]:
    """Return the files of an installed collection."""
    top = f"ansible_collections/{name.replace('.', '/')}"
    namespace, _, short = name.partition(".")
    about = {"namespace": namespace, "name": short, "version": version}
    files = {f"{top}/plugins/{path}.py": code for path, code in plugins.items()}
    return {f"{top}/MANIFEST.json": json.dumps({"collection_info": about}), **files}


def test_roles_of_the_image_are_found_in_the_project(tmp_path: Path) -> None:
    """A play names them as its image has them: the Dockerfile and the directory `roles` decide."""
    play = (
        "- hosts: localhost\n  gather_facts: false\n  roles: [short]\n"
        "  tasks: [{include_role: {name: /opt/ansible/roles/long}}]\n"
    )
    files = {
        "roles/short/tasks/main.yml": "- {name: Short, debug: {msg: short}}\n",
        "Dockerfile": "COPY content/roles/ ${HOME}/roles/\n",
        "content/roles/long/tasks/main.yml": (
            '- {name: Long, debug: {msg: "{{ role_name }}"}}\n'
            "- {name: None, include_role: {name: no-such}, ignore_errors: true}\n"
        ),
    }
    Project(files=files).write(tmp_path / "project")
    settings = AnsibleSettings(skip_facts=True, project=tmp_path / "project")
    with Launchers(settings) as launchers:
        record = Both(launchers, tmp_path)(Project(files={"site.yml": play}))
    assert record.result("Short")["msg"] == "short"
    assert record.result("Long")["msg"] == "long"
    assert "The role 'no-such' was not found" in str(record.outcome)


def test_pinned_collections_work(tmp_path: Path) -> None:
    """Files of `k8s` are rendered, data is not; what cannot work is replaced by the bundled one."""
    plugins = {"action/k8s": _ACTION, "modules/k8s": _MODULE, "modules/requeue_after": _MODULE}
    files = {
        **_collection("kubernetes.core", "5.0.0", **plugins),
        **_collection("acme.own", "1.0.0", **plugins),
        **_collection("operator_sdk.util", "0.4.0", **plugins),
    }
    craft = "ansible_collections/craft/kit/roles"
    files |= {
        **_collection("craft.kit", "", **{"modules/saw": _MODULE, "filter/tools": _FILTER}),
        f"{craft}/build/tasks/main.yml": "- include_role: {name: helper}\n- {name: Saw, saw: }\n",
        f"{craft}/helper/tasks/main.yml": '- debug: {msg: "{{ 1 | craft.kit.cut }}"}\n',
    }
    pinned = tmp_path / "pinned"
    Project(files=files).write(pinned)
    tasks = """
- name: Text
  kubernetes.core.k8s: {template: text.j2}
- name: Map
  kubernetes.core.k8s: {template: map.j2}
- name: Delimiters
  kubernetes.core.k8s:
    {template: delimiters.j2, variable_start_string: '[[', variable_end_string: ']]'}
- name: Again
  kubernetes.core.k8s: {template: text.j2}
  environment: {ENABLE_TURBO_MODE: 'true'}
- name: Data
  acme.own.k8s: {template: text.j2}
- name: Requeue
  operator_sdk.util.requeue_after: {}
  ignore_errors: true
"""
    templates = {
        "text": "name: {{ size + 1 }}\n",
        "map": "{{ {'size': size} | to_json }}",
        "delimiters": "[[ size ]] {{ size }}",
    }
    named = {f"roles/tried/templates/{name}.j2": text for name, text in templates.items()}
    settings = AnsibleSettings(skip_facts=True, collections_path=str(pinned))
    with Launchers(settings) as launchers:
        both = Both(launchers, tmp_path)
        record = both(Project(tasks, named, variables={"size": 3}))
        by_full_name = both(Project(role=pinned / craft / "build"))
    assert record.result("Text")["definition"] == "name: 4\n"
    assert record.result("Map")["definition"] == '{"size": 3}'
    assert record.result("Delimiters")["definition"] == "3 {{ size }}"
    assert record.result("Again")["definition"] == "name: 4\n"
    assert record.result("Again")["turbo"] in {None, "false"}
    assert record.result("Data")["definition"] == templates["text"]
    assert record.result("Requeue")["msg"] == "missing required arguments: time"
    assert by_full_name.result("Saw")["own"], "a short name of its own collection"
