"""Edits on disk take effect at the next run, although launchers keep files loaded."""

from __future__ import annotations

from pathlib import Path

from tests.contract.ansible.launchers.launching import Launchers
from tests.contract.ansible.launchers.projects import Project


def test_edits_take_effect_at_the_next_run(launchers: Launchers, tmp_path: Path) -> None:
    """Roles, modules, module_utils, filters and collections are read afresh by each run."""
    root = "collections/ansible_collections/acme/edited/plugins"
    versions = [
        {
            "site.yml": "- {hosts: localhost, gather_facts: false, roles: [edited]}\n",
            "roles/edited/tasks/main.yml": f"""
- {{name: Role, debug: {{msg: role {version}}}}}
- {{name: Filter, debug: {{msg: "{{{{ 1 | edited }}}}"}}}}
- {{name: Module, edited_module: }}
- {{name: Collection, debug: {{msg: "{{{{ 1 | acme.edited.other }}}}"}}}}
- {{name: Collected module, acme.edited.shown: }}
""",
            "filter_plugins/edited.py": _filter("edited", version),
            "library/edited_module.py": _module("ansible.module_utils.edited_util"),
            "module_utils/edited_util.py": f"VERSION = {version}\n",
            f"{root}/filter/other.py": _filter("other", version),
            f"{root}/modules/shown.py": _module(
                "ansible_collections.acme.edited.plugins.module_utils.util"
            ),
            f"{root}/module_utils/util.py": f"VERSION = {version}\n",
        }
        for version in (1, 2)
    ]
    for name in launchers.names:
        for number, files in enumerate(versions, start=1):
            record = launchers.run(name, Project(files=files), tmp_path / "case")
            (tmp_path / f"case-{name}").rename(tmp_path / f"{name}-{number}")
            assert record.outcome.successful, (name, record.outcome.failures)
            messages = [record.result(task)["msg"] for task in ("Role", "Filter", "Collection")]
            assert messages == [f"role {number}", str(number), str(number)], name
            for task in ("Module", "Collected module"):
                assert record.result(task)["version"] == number, name


def _filter(name: str, version: int) -> str:
    return f"""
class FilterModule:
    def filters(self):
        return {{"{name}": lambda _: {version}}}
"""


def _module(util: str) -> str:
    return f"""#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from {util} import VERSION
AnsibleModule({{}}).exit_json(version=VERSION)
"""
