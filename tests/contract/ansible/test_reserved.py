"""The names that Ansible gives, beside what its own documentation of plugins has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from operator_runner.ansible import reserved_names
from operator_runner.ansible.cold.launcher import ColdLauncher
from operator_runner.ansible.executor import open_launcher
from operator_runner.ansible.forkserver import launcher
from operator_runner.ansible.forkserver.launcher import ForkServer
from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.core.errors import RunError
from operator_runner.core.settings import AnsibleSettings

DOCUMENTED = """
import json
from ansible import constants
from ansible.plugins import loader
from ansible.plugins.list import list_plugins
from ansible.utils.plugin_docs import get_plugin_docs
loader.init_plugin_loader()
names = set()
for kind in ("become", "connection", "shell", "httpapi"):
    plugins = getattr(loader, f"{kind}_loader")
    for name in list_plugins(kind):
        docs = get_plugin_docs(name, kind, plugins, loader.fragment_loader, False)[0]
        for option in (docs.get("options") or {}).values():
            names.update(variable["name"] for variable in option.get("vars") or ())
print(json.dumps(sorted(names)))
"""


def _break_plugins(collection: Path) -> None:
    """Add what ansible-playbook only reads if a play uses it, in a checkout without a version."""
    (collection / "galaxy.yml").write_text("namespace: a\nname: b\n")
    beside = collection.parent / "c"
    (beside / "plugins" / "filter").mkdir(parents=True)
    (beside / "galaxy.yml").write_text("- [not: a, map")
    plugins = collection / "plugins" / "connection"
    broken = {
        "syntax.py": "def\nDOCUMENTATION = x\nvars:",
        "null.py": "\0 vars:",
        "yaml.py": "DOCUMENTATION = 'vars: [{'",
        "date.yml": "vars: 2026-99-99",
        "endless.yml": "&a [vars: *a]",
        "deep.yml": f"vars: {'[' * 5000}",
    }
    for name, text in broken.items():
        (plugins / name).write_text(text)
    (plugins / "latin.py").write_bytes(b"# \xff\nvars: x")
    (plugins / "dangling.py").symlink_to("nowhere")
    os.mkfifo(plugins / "pipe.py")
    (plugins / "folder.py").mkdir()


async def test_the_names_are_those_of_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options of plugins, beside roles and playbooks too, what Ansible sets itself, keywords.

    Plugins and collections that cannot be read change nothing.
    """
    option = 'DOCUMENTATION = """\noptions:\n  a:\n    vars:\n    - name: {}\n"""\n'
    role, playbook = tmp_path / "roles" / "web", tmp_path / "site.yml"
    beside_role = role / "lookup_plugins" / "mine.py"
    collection = tmp_path / "collections" / "ansible_collections" / "a" / "b"
    of_collection = collection / "plugins" / "connection" / "mine.py"
    for path, name in ((beside_role, "tool_program"), (of_collection, "wire_program")):
        path.parent.mkdir(parents=True)
        path.write_text(option.format(name))

    _break_plugins(collection)
    with monkeypatch.context() as patch:
        patch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path / "collections"))
        names = await ReservedNamesLoader(AnsibleSettings(), [role, playbook]).get()

    documented = json.loads(
        subprocess.run(  # noqa: ASYNC221 (no other task is active)
            [sys.executable, "-c", DOCUMENTED], capture_output=True, check=True, text=True
        ).stdout
    )
    assert len(documented) > 100
    assert {name.partition("[")[0] for name in documented} <= names.acted_on
    assert {"tool_program", "wire_program"} <= names.acted_on
    assert {"vars", "environment", "groups", "role_path", "omit", "lookup"} <= names.acted_on
    assert {"hosts", "port", "name", "tags", "no_log", "timeout"} <= names.keywords
    assert not {"namespace", "range", "size", "image"} & (names.acted_on | names.keywords)


async def test_a_fork_server_lists_the_same_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has loaded ansible-core, and no other process is started."""
    role = tmp_path / "roles" / "web"
    plugin = role / "lookup_plugins" / "mine.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text('DOCUMENTATION = """\noptions:\n  a:\n    vars:\n    - name: tool\n"""\n')
    alone = await ReservedNamesLoader(AnsibleSettings(), [role]).get()
    assert "tool" in alone.acted_on

    monkeypatch.setattr(reserved_names, "_PROGRAM", ("false",))
    names = ReservedNamesLoader(AnsibleSettings(), [role])
    async with open_launcher("warm", AnsibleSettings(), contents=[role], names=names):
        assert await names.get() == alone
    await names.close()


async def test_without_a_fork_server_a_process_lists_the_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plays are run cold."""

    async def failing(*_: object) -> ForkServer:
        raise RunError("no memory")

    monkeypatch.setattr(launcher, "start_server", failing)
    names = ReservedNamesLoader(AnsibleSettings(), [])
    async with open_launcher("warm", AnsibleSettings(), names=names) as opened:
        assert isinstance(opened, ColdLauncher)
        assert "vars" in (await names.get()).acted_on


@pytest.mark.parametrize("written", [b"", b'{"acted_on": ["a"'])
async def test_a_process_lists_the_names_that_a_fork_server_has_not_written(written: bytes) -> None:
    """The process that listed them was killed before its end."""
    names = ReservedNamesLoader(AnsibleSettings(), [])
    descriptor = names.start_from_fork_server()
    os.write(descriptor, written)
    os.close(descriptor)
    assert "vars" in (await names.get()).acted_on
    await names.close()


async def test_reserved_names_are_read_again_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the reason; after the fix the names are returned."""
    config = tmp_path / "ansible.cfg"
    config.write_text("no section\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(config))
    loader = ReservedNamesLoader(AnsibleSettings(), [])

    with pytest.raises(RunError, match=r"ansible\.cfg|section"):
        await loader.get()

    config.write_text("")
    assert "vars" in (await loader.get()).acted_on
