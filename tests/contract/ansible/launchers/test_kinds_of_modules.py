"""Modules in other languages and of older styles, and all that they may import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project

LIBRARY = {
    "want_json": """#!/bin/sh
# WANT_JSON
name=$(sed -n 's/.*"name": "\\([^"]*\\)".*/\\1/p' "$1")
echo "{\\"changed\\": true, \\"said\\": \\"$name\\", \\"cwd\\": \\"$PWD\\"}"
""",
    "old_style.sh": """#!/bin/sh
. "$1"
echo "{\\"said\\": \\"$name\\"}"
""",
    "key_is_value": """#!/bin/sh
. "$1"
echo "changed=true said=$name rc=0"
""",
    "failing.sh": "#!/bin/sh\necho 'no json' >&2\nexit 3\n",
    "old_python.py": """#!/usr/bin/python
import json, sys
print(json.dumps({"said": open(sys.argv[1]).read().split()[0], "python": sys.executable}))
""",
    "json_arguments.py": """#!/usr/bin/python
import json
arguments = json.loads('''<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>''')
print(json.dumps({"said": arguments["name"]}))
""",
    "replaced.py": """#!/usr/bin/python
import json
#<<INCLUDE_ANSIBLE_MODULE_COMMON>>
module = AnsibleModule({"name": {}})
module.exit_json(said=module.params["name"])
""",
    "flagged.py": """#!/usr/bin/python -W ignore
from ansible.module_utils.basic import AnsibleModule
import sys
module = AnsibleModule({"name": {}})
module.exit_json(said=module.params["name"], options=sys.warnoptions)
""",
    "no_shebang.py": """from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"name": {}})
module.exit_json(said=module.params["name"])
""",
    "other_shebang.py": """#!/usr/bin/env python3
from ansible.module_utils import basic
module = basic.AnsibleModule({"name": {}})
module.exit_json(said=module.params["name"])
""",
    "no_suffix": """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"name": {}})
module.exit_json(said=module.params["name"])
""",
}


@pytest.mark.local_only("the temporary directory is that of the Pod")
def test_modules_of_every_language_are_called(both: Both) -> None:
    """Each is called in its own way, and its result understood."""
    names = [name.split(".")[0] for name in LIBRARY]
    tasks = "".join(
        f"- name: {name}\n  {name}: {{name: me}}\n  ignore_errors: true\n" for name in names
    )
    tasks += "- name: binary\n  binary: {name: me}\n  register: binary\n"
    files: dict[str, str | bytes] = {
        f"roles/tried/library/{name}": text for name, text in LIBRARY.items()
    }
    # A module that prints its file of arguments, which is JSON for a binary module.
    files["roles/tried/library/binary"] = Path("/bin/cat").read_bytes()
    record = both(Project(tasks, files))
    assert record.outcome.successful
    printed = {name: record.result(name).get("said") for name in names}
    # ansible-core has given up on results of key=value, and looks for a program of that name.
    for name in ("failing", "key_is_value", "flagged", "other_shebang"):
        assert printed.pop(name) is None
    assert printed.pop("old_python") == "name=me"
    assert set(printed.values()) == {"me"}
    assert record.result("binary")["name"] == "me"


def test_modules_import_their_module_utils(both: Both) -> None:
    """module_utils of the role, relative ones of a collection, and packages of Python."""
    importing = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.OWN_words import words
from ansible.module_utils.OWN_package.deep import DEEP
from ansible.module_utils.six import text_type
from ansible.module_utils.common.text.converters import to_bytes
try:
    from ansible.module_utils.not_there import nothing
except ImportError:
    nothing = "fallback"
import OWN_top, yaml


def main():
    from ansible.module_utils import OWN_late
    module = AnsibleModule({})
    module.exit_json(words=words(), deep=DEEP, nothing=nothing, late=OWN_late.LATE,
                     version=module.ansible_version, name=__name__, file=__file__[-9:])


if __name__ == "__main__":
    main()
"""
    importing = importing.replace("import OWN_top, yaml\n", "import yaml\n")
    nearby = """#!/usr/bin/python
from __future__ import annotations
from ansible.module_utils.basic import AnsibleModule
from ..module_utils.near import NEAR
from ..module_utils import package
from ansible_collections.acme.tools.plugins.module_utils.near import NEAR as SAME
from ansible_collections.kubernetes.core.plugins.module_utils.hashes import generate_hash


def main():
    module = AnsibleModule({}, supports_check_mode=True)
    module.exit_json(near=NEAR, same=NEAR is SAME, inner=package.INNER, changed=True,
                     hash=generate_hash({"kind": "ConfigMap"}))


main()
"""
    root = "collections/ansible_collections/acme/tools"
    files = {
        "library/importing.py": importing,
        "module_utils/OWN_words.py": "def words():\n    return 'of the project'\n",
        "module_utils/OWN_package/__init__.py": "",
        "module_utils/OWN_package/deep.py": "from .more import DEEP\n",
        "module_utils/OWN_package/more.py": "DEEP = 'deep'\n",
        "module_utils/OWN_late.py": "LATE = 'late'\n",
        f"{root}/plugins/modules/nearby.py": nearby,
        f"{root}/plugins/modules/sub/inner.py": nearby.replace("..", "..."),
        f"{root}/plugins/module_utils/near.py": "NEAR = ['near']\n",
        f"{root}/plugins/module_utils/package/__init__.py": "from .inner import INNER\n",
        f"{root}/plugins/module_utils/package/inner.py": "INNER = 'inner'\n",
        "site.yml": """
- hosts: localhost
  gather_facts: false
  collections: [acme.tools]
  module_defaults: {importing: {}, group/k8s: {}}
  tasks:
    - {name: Importing, importing: }
    - {name: Nearby, acme.tools.nearby: }
    - {name: By search, nearby: }
    - {name: Sub, acme.tools.sub.inner: }
    - {name: Role, include_role: {name: other}}
    - {name: Again, importing: }
""",
        "roles/other/tasks/main.yml": "- {name: Other, other: }\n",
        "roles/other/library/other.py": """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.OWN_words import words
AnsibleModule({}).exit_json(words=words())
""",
        "roles/other/module_utils/OWN_words.py": "def words():\n    return 'of the role'\n",
    }
    files = {path.replace("OWN", "own"): text.replace("OWN", "own") for path, text in files.items()}
    record = both(Project(files=files))
    assert record.outcome.successful, record.outcome.failures
    assert record.result("Importing")["words"] == "of the project"
    assert record.result("Importing")["nothing"] == "fallback"
    assert record.result("Nearby")["inner"] == "inner"


def test_a_project_overrides_module_utils(both: Both) -> None:
    """A project may put its own in the place of what ansible-core has."""
    files = {
        "library/shown.py": """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import OWN
AnsibleModule({}).exit_json(own=OWN)
""",
        "module_utils/urls.py": "OWN = 'instead'\n",
        "library/ping.py": """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
AnsibleModule({"data": {}}).exit_json(ping="my own ping")
""",
        "site.yml": """
- hosts: localhost
  gather_facts: false
  tasks:
    - {name: Shown, shown: }
    - {name: Legacy, ping: }
    - {name: Builtin, ansible.builtin.ping: }
""",
    }
    record = both(Project(files=files))
    assert record.result("Shown")["own"] == "instead"
    assert record.result("Legacy")["ping"] == "my own ping"
    assert record.result("Builtin")["ping"] == "pong"


def test_modules_get_check_mode_and_defaults(both: Both) -> None:
    """Modules get check mode, diff, verbosity and defaults; unsupported ones are skipped."""
    module = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(
    {"name": {"fallback": (lambda name: __import__("os").environ[name], ["USER_OF_PLAY"])},
     "list": {"type": "list", "elements": "int", "aliases": ["lists"]},
     "old": {"removed_in_version": "99.0", "removed_from_collection": "a.b"},
     "sub": {"type": "dict", "options": {"path": {"type": "path"}}, "apply_defaults": True}},
    supports_check_mode=SUPPORTED, mutually_exclusive=[["sub", "old"]],
)
module.warn("a warning")
module.deprecate("a deprecation", version="99.0", collection_name="a.b")
module.log("to syslog")
module.exit_json(check=module.check_mode, diff={"before": "a\\n", "after": "b\\n"},
    wanted=module._diff, verbosity=module._verbosity,
    debug=module._debug, keep=module._keep_remote_files,
    name=module._name, params=module.params,
    syslog=module._syslog_facility,
    shell=module._shell, socket=module._socket_path, selinux=module.selinux_enabled())
"""
    module = module.replace(" keep=", "\n    keep=")
    tasks = """
- name: Told
  told: {lists: ['1', 2], sub: {path: '~/x'}}
  environment: {USER_OF_PLAY: from the environment}
- name: Deprecated
  told: {old: x, name: y}
  ignore_errors: true
- name: Exclusive
  told: {old: x, sub: {}, name: y}
  ignore_errors: true
- name: Skipped
  unsupporting: {name: x}
- name: Defaults
  module_defaults: {told: {name: by default}}
  block:
    - name: By default
      told:
"""
    library = {
        "roles/tried/library/told.py": module.replace("SUPPORTED", "True"),
        "roles/tried/library/unsupporting.py": module.replace("SUPPORTED", "False"),
    }
    record = both(Project(tasks, library, args="--check --diff"))
    assert record.result("Told")["check"] is True
    assert record.result("Told")["params"]["list"] == [1, 2]
    assert record.result("By default")["params"]["name"] == "by default"
    assert record.kinds(task="Skipped")[-1] == "runner_on_skipped"
    assert "a warning" in record.stdout
