"""Specs of an attacker who tries to run commands in the operator, with both launchers."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from operator_runner.ansible.executor import AnsibleExecutor, Launcher, open_launcher
from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.json_bounds import MAX_DEPTH
from operator_runner.core.model import (
    GVK,
    Json,
    ObjectRef,
    ReservedNames,
    RunContent,
    RunOutcome,
    RunRequest,
    Watch,
)
from operator_runner.core.settings import AnsibleSettings, ExecutorName
from operator_runner.reconcile.reserved_fields import dropped, reserved_fields
from operator_runner.reconcile.variables import extra_vars

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
SETTINGS = AnsibleSettings(skip_facts=True)
SPEC = "_example_com_foo_spec"

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Runs:
    """Runs of a role over specs, without the fields that the operator drops."""

    def __init__(self, scratch: Path, launcher: Launcher, names: ReservedNames) -> None:
        self._names = names
        self.role = scratch / "roles" / "tried"
        (self.role / "tasks").mkdir(parents=True)
        self.out = scratch / "out"
        self.touched = scratch / "touched"
        self.watch = Watch(REF.gvk, RunContent(role=self.role), vars={"out": str(self.out)})
        self.rundirs = RunDirs(scratch / "work")
        self._executor = AnsibleExecutor(launcher, self.rundirs, SETTINGS)

    async def __call__(self, tasks: str, spec: Json, **watch: Any) -> RunOutcome:
        (self.role / "tasks" / "main.yml").write_text(tasks)
        used = replace(self.watch, **watch)
        body = {"metadata": {"name": "a", "namespace": "default"}, "spec": spec}
        fields = reserved_fields(body, used, self._names)
        left_out = {field.name for field in dropped(fields, ())}
        request = RunRequest(
            run_id=secrets.token_hex(4),
            ref=REF,
            content=used.content,
            extra_vars=extra_vars(body, used, cleanup=False, excluded=left_out),
            kubeconfig="the token",
            verbosity=0,
            max_artifacts=1,
            timeout=None,
        )
        return await self._executor.run(request, lambda _: None)

    def seen(self) -> Any:
        """Return the output of the role."""
        return json.loads(self.out.read_text())


@pytest.fixture(scope="module", params=["cold", "warm"])
def kind(request: pytest.FixtureRequest) -> ExecutorName:
    return cast(ExecutorName, request.param)


@pytest.fixture(scope="module")
def names() -> ReservedNames:
    return asyncio.run(ReservedNamesLoader(SETTINGS, []).get())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def launcher(
    kind: ExecutorName, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Launcher]:
    """Share the launcher: a fork server takes seconds to start."""
    folder = tmp_path_factory.mktemp("launcher")
    (folder / "password").write_text("correct horse")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(folder / "password"))
        # Elsewhere ansible-core loses jobs if HOME is not the user's home, as in containers of CI.
        patch.setenv("ANSIBLE_ASYNC_DIR", str(folder / "jobs"))
        async with open_launcher(kind, SETTINGS) as opened:
            yield opened


@pytest.fixture
def runs(tmp_path: Path, launcher: Launcher, names: ReservedNames) -> Runs:
    return Runs(tmp_path, launcher, names)


async def test_names_of_a_spec_run_no_command(runs: Runs) -> None:
    """Connection, interpreter, shell, directory and become: only if the watch allows the names."""
    program = runs.touched.with_name("program")
    program.write_text(f"#!/bin/sh\ntouch {runs.touched}\n")
    program.chmod(0o700)
    attacks: list[tuple[str, Json]] = [
        (
            "- raw: 'true'\n",
            {
                "ansibleConnection": "ssh",
                "ansibleSshCommonArgs": f"-o ProxyCommand='touch {runs.touched}'",
            },
        ),
        ("- ping: {}\n", {"ansiblePythonInterpreter": str(program)}),
        ("- shell: 'true'\n", {"ansibleShellExecutable": str(program)}),
        (
            "- {ping: {}, async: 300, poll: 1}\n",
            {"ansibleRemoteTmp": f"$(touch {runs.touched})/a"},
        ),
        (
            "- raw: 'true'\n",
            {"ansibleBecome": True, "ansibleBecomeUser": "bin", "ansibleBecomeExe": str(program)},
        ),
    ]
    for tasks, spec in attacks:
        await runs(tasks, spec, allow_vars=frozenset(spec))
        assert runs.touched.exists(), spec
        runs.touched.unlink()

    every_task = "".join(tasks for tasks, _ in attacks)
    whole: Json = {name: value for _, spec in attacks for name, value in spec.items()}
    for mark_unsafe in (False, True):
        outcome = await runs(every_task, whole, mark_unsafe=mark_unsafe)
        assert outcome.successful, outcome.failures
        assert not runs.touched.exists()


USES = """
- copy: {content: "{{ _example_com_foo_spec | to_json }}", dest: "{{ out }}"}
- debug: {var: _example_com_foo}
- debug: {msg: "{{ text }} {{ vars['text'] }} {{ hostvars.localhost.text }}{{ tree | string }}"}
- debug: {msg: "{{ lookup('vars', 'text') }} {{ item }}"}
  loop: "{{ tree }}"
- set_fact: {again: "{{ tree }}", text_again: "{{ text }}"}
- debug: {msg: "{{ again }} {{ text_again }}"}
- debug: {msg: "{{ lookup('dict', tree[0]) }}"}
- debug: {msg: never}
  when: "{{ condition }}"
  ignore_errors: true
- assert: {that: "{{ condition }}"}
  ignore_errors: true
"""


async def test_marked_unsafe_no_text_is_evaluated(runs: Runs) -> None:
    """In values and keys, nested, and in maps that look like tags of Ansible's JSON."""
    call = f"lookup('pipe', 'touch {runs.touched}')"
    evil = f"{{{{ {call} }}}}"
    spec: Json = {
        "text": evil,
        "condition": call,
        evil: evil,
        "tree": [
            {evil: evil, "__ansible_unsafe": evil, "more": {"__ansible_unsafe": {"a": [evil]}}},
            {"__ansible_type": "TrustedAsTemplate", "value": evil},
            {"__ansible_type": "_AnsibleTaggedStr", "value": evil, "tags": [evil]},
            {"__ansible_vault": evil},
            {"__ansible_unsafe": evil},
            {"<<": {"=": "yes"}, "1": "0x1f", "null": "~", "2001-01-01": "2001-01-01T00:00:00Z"},
            {"!unsafe": "!vault", "\u2028\x7f\x85": "\ufeff\U0001f600\ttab\nline\\"},
            [1, 1.5, 1e20, -3, True, None, "", [], {}],
        ],
        "plain": {"__ansible_unsafe": evil},
    }

    outcome = await runs(USES, spec, mark_unsafe=True)

    assert outcome.successful, outcome.failures
    assert runs.seen() == spec
    assert not runs.touched.exists()


async def test_type_tags_of_a_resource_mean_nothing(runs: Runs) -> None:
    """Without markUnsafe a text is a template wherever it is; a tag is a key like others."""
    spec: Json = {
        "tree": [
            {"__ansible_unsafe": "{{ 1 + 1 }}", "more": {"__ansible_vault": "no cipher"}},
            {"__ansible_type": "TrustedAsTemplate", "value": "{{ 'a' ~ 'b' }}"},
            {"{{ 1 + 1 }}": "a key"},
        ],
        "text": "as ever: {{ 1 + 1 }}",
        "condition": "true",
    }

    outcome = await runs(USES, spec)

    assert outcome.successful, outcome.failures
    assert runs.seen() == {
        "tree": [
            {"__ansible_unsafe": "2", "more": {"__ansible_vault": "no cipher"}},
            {"__ansible_type": "TrustedAsTemplate", "value": "ab"},
            {"{{ 1 + 1 }}": "a key"},
        ],
        "text": "as ever: 2",
        "condition": "true",
    }


_TRUSTED = {"__ansible_type": "TrustedAsTemplate"}
TAGGED = {"__ansible_type": "_AnsibleTaggedStr", "tags": [_TRUSTED]}


@pytest.mark.parametrize(
    "expression", ["{{ text }}", "{{ text | from_yaml }}", "{{ dict(tree.items()) }}"]
)
async def test_type_tags_in_cached_facts_mean_nothing(runs: Runs, expression: str) -> None:
    """ansible-core reads cached facts from JSON with tags, in which data may look like one."""
    evil = {**TAGGED, "value": f"{{{{ lookup('pipe', 'touch {runs.touched}') }}}}"}
    tasks = f"""
- set_fact: {{kept: "{expression}", cacheable: true}}
- copy: {{content: "{{{{ [kept, ansible_facts.kept] | to_json }}}}", dest: "{{{{ out }}}}"}}
"""

    outcome = await runs(tasks, {"text": str(evil), "tree": evil}, mark_unsafe=True)

    assert outcome.successful, outcome.failures
    assert runs.seen() == [evil, evil]
    assert not runs.touched.exists()


MODULE = """
import json
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"data": {"type": "raw"}})
module.exit_json(back=json.loads(json.dumps(module.params["data"])))
"""


@pytest.mark.parametrize("kind", ["warm"], indirect=True)
async def test_type_tags_reach_modules_and_return(runs: Runs) -> None:
    """As a role passes a spec to a module, and as k8s_info reads objects of others."""
    (runs.role / "library").mkdir()
    (runs.role / "library" / "back.py").write_text(MODULE)
    tree: list[Any] = [
        {**TAGGED, "value": "{{ 1 + 1 }}"},
        {"__ansible_type": ["x"]},
        {"__ansible_type": "AnsibleSerializableDate", "iso8601": "2001-01-01"},
        {"__ansible_pairs": [], "__ansible_unsafe": "a", "__ansible_vault": "b"},
    ]
    tasks = """
- back: {data: "{{ tree }}"}
  register: given
- copy: {content: "{{ given.back | to_json }}", dest: "{{ out }}"}
"""

    outcome = await runs(tasks, {"tree": tree}, mark_unsafe=True)

    assert outcome.successful, outcome.failures
    assert runs.seen() == tree


async def test_a_module_without_the_patch_returns_maps_with_a_type_key(runs: Runs) -> None:
    """So a ConfigMap of others with such a key does not fail a role that lists them."""
    (runs.role / "library").mkdir()
    found: list[Any] = [{**TAGGED, "value": "{{ 1 + 1 }}"}, {"__ansible_type": "x"}]
    program = f"#!/bin/sh\necho '{json.dumps({'back': found})}'\n"
    (runs.role / "library" / "back").write_text(program)
    tasks = """
- back: {}
  register: given
- copy: {content: "{{ given.back | to_json }}", dest: "{{ out }}"}
"""

    outcome = await runs(tasks, {}, mark_unsafe=True)

    assert outcome.successful, outcome.failures
    assert runs.seen() == found


@pytest.mark.parametrize("spec", [{"size": "3"}, {"tag": {"__ansible_type": "x"}}])
async def test_vars_of_the_watch_keep_templates_and_vault_values(runs: Runs, spec: Json) -> None:
    """Templates of the operator's author are evaluated, for any resource."""
    program = Path(sys.executable).with_name("ansible-vault")
    encrypted = subprocess.run(  # noqa: ASYNC221 (short, and no other task is active)
        [program, "encrypt", "--output=-"],
        input="secret",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    given = {
        **runs.watch.vars,
        "greeting": "hello {{ ansible_operator_meta.name }}",
        "key": {"__ansible_vault": encrypted},
        "plain": {"__ansible_unsafe": "{{ 1 + 1 }}"},
    }
    tasks = "- copy: {content: '{{ [greeting, key, plain] | to_json }}', dest: '{{ out }}'}\n"

    outcome = await runs(tasks, spec, mark_unsafe=True, vars=given)

    assert outcome.successful, outcome.failures
    assert runs.seen() == ["hello a", "secret", "{{ 1 + 1 }}"]


async def test_a_deep_resource_does_not_become_templates(runs: Runs) -> None:
    """As deep as resources may be it is data; what Ansible's decoder gives up on is not run."""

    def nested(levels: int) -> Json:
        spec: Json = {"text": f"{{{{ lookup('pipe', 'touch {runs.touched}') }}}}"}
        for _ in range(levels):
            spec = {"text": spec["text"], "deep": spec}
        return spec

    tasks = "- copy: {content: '{{ _example_com_foo_spec | to_json }}', dest: '{{ out }}'}\n"
    outcome = await runs(tasks, nested(MAX_DEPTH - 3), mark_unsafe=True)
    assert outcome.successful, outcome.failures
    assert runs.seen() == nested(MAX_DEPTH - 3)

    await runs(tasks, nested(300), mark_unsafe=True)
    assert not runs.touched.exists()
