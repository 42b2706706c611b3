"""What projects for ansible-operator have: `validate` calls an error what fails for certain."""

from __future__ import annotations

from pathlib import Path

from tests.contract.tools.validate.test_validate import validate, write
from tests.support.scaffold import run

MODULE = (
    "from ansible.module_utils.basic import AnsibleModule\n"
    "AnsibleModule(argument_spec={}).exit_json(changed=False)\n"
)


def errors(project: Path) -> list[str]:
    return [each for each in validate(project).stderr.splitlines() if each.startswith("Error")]


def test_modules_that_the_dockerfile_copies_to_the_module_directory(tmp_path: Path) -> None:
    """`COPY library/ /usr/share/ansible/openshift/`; without it the module is unknown."""
    files = {
        "roles/site/tasks/main.yml": "- saw:\n",
        "library/saw.py": MODULE,
        "Dockerfile": "FROM ansible-operator\nCOPY library/ /usr/share/ansible/openshift/\n",
    }
    assert errors(write(tmp_path, files)) == []
    (tmp_path / "Dockerfile").unlink()
    assert errors(tmp_path) == ["Error: roles/site/tasks/main.yml:1: unknown module saw"]


def test_the_removed_include_is_the_only_error(tmp_path: Path) -> None:
    """Variables that it passes to its file are defined there."""
    files = {
        "roles/site/tasks/main.yml": "- include: scale.yml owner={{ ports }}\n",
        "roles/site/tasks/scale.yml": "- debug: {msg: '{{ owner }}'}\n",
    }
    found = errors(write(tmp_path, files))
    assert len(found) == 1
    assert "tasks/main.yml:1: The 'ansible.builtin.include' action plugin has been" in found[0]


def test_a_collection_that_has_the_role_has_its_modules(tmp_path: Path) -> None:
    """A role by its full name uses a module of its own collection by short name."""
    kit = "coll/ansible_collections/craft/kit"
    files = {
        "watches.yaml": "- {group: example.com, version: v1, kind: Site, role: craft.kit.build}\n",
        f"{kit}/galaxy.yml": "{namespace: craft, name: kit, version: 1.0.0}\n",
        f"{kit}/roles/build/tasks/main.yml": "- saw:\n",
        f"{kit}/plugins/modules/saw.py": MODULE,
    }
    done = run(write(tmp_path, files), "validate", "--ansible-collections-path=coll")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_required_option_that_nothing_sets(tmp_path: Path) -> None:
    """It is an error unless a playbook that runs the role sets it."""
    specs = "argument_specs: {main: {options: {owner: {required: true}}}}\n"
    files = {"roles/site/tasks/main.yml": "[]\n", "roles/site/meta/argument_specs.yml": specs}
    assert len(errors(write(tmp_path, files))) == 1
    play = "- {hosts: localhost, vars: {owner: me}, roles: [site]}\n"
    watches = "- {group: example.com, version: v1, kind: Site, playbook: play.yml}\n"
    assert errors(write(tmp_path, {"play.yml": play, "watches.yaml": watches})) == []
