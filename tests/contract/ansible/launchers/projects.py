"""Small Ansible projects, written to disk and run through a launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from operator_runner.ansible.executor import AnsibleExecutor, Launcher
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.model import GVK, Json, ObjectRef, RunContent, RunEvent, RunRequest
from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.masks import Masks
from tests.contract.ansible.launchers.records import Record, read_record
from tests.support.deadlines import Deadline

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "tried")
_RUN = "run"


_IMPORTS = """#!/usr/bin/python
import json, os, signal, sys, time
from ansible.module_utils.basic import AnsibleModule
"""


def library(**modules: str) -> dict[str, str]:
    """Return the files of modules of the role, given their code after the usual imports."""
    return {f"roles/tried/library/{name}.py": _IMPORTS + code for name, code in modules.items()}


@dataclass(frozen=True)
class Project:
    """A project and how to run it: with `tasks` the role roles/tried, else the `playbook`.

    Plays have the project in the variable `site`, and a directory for their files in `out`.
    """

    tasks: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Content by path; files that begin with #! become executable."""
    role: Path | None = None
    """A role elsewhere, which is run instead."""
    playbook: str = "site.yml"
    inventory: str = ""
    args: str = ""
    verbosity: int = 0
    variables: Json = field(default_factory=dict)
    kubeconfig: str = "the token"
    hangs: str = ""
    """The task with whose start the timeout of the run expires, which is an hour."""
    native_types: bool | None = None
    masked: Mapping[str, str] = field(default_factory=dict)
    """Texts that only one run has, and their replacements."""
    resource: str = REF.name
    """The name of the resource, and so that of the private data dir."""

    def write(self, site: Path) -> RunContent:
        """Write the project; return the content to run."""
        for name, content in self.files.items():
            _write(site / name, content)
        (site / "out").mkdir(parents=True)
        if self.role is not None:
            return RunContent(role=self.role)
        if not self.tasks:
            return RunContent(playbook=site / self.playbook)
        _write(site / "roles" / "tried" / "tasks" / "main.yml", self.tasks)
        return RunContent(role=site / "roles" / "tried")

    def settings(self, site: Path, general: AnsibleSettings) -> AnsibleSettings:
        """Return the settings of an operator whose project is in `site`."""
        return replace(
            general,
            args=self.args.format(site=site),
            inventory=site / self.inventory if self.inventory else None,
        )

    async def run(self, launcher: Launcher, site: Path) -> Record:
        """Write the project to `site` and run it there; the work dir is beside the project."""
        content = self.write(site)
        rundirs = RunDirs(site.parent / "work")
        ref = replace(REF, name=self.resource)
        settings = self.settings(site, AnsibleSettings())
        request = RunRequest(
            run_id=_RUN,
            ref=ref,
            content=content,
            extra_vars={"site": str(site), "out": str(site / "out"), **self.variables},
            kubeconfig=self.kubeconfig,
            verbosity=self.verbosity,
            max_artifacts=20,
            timeout=timedelta(hours=1) if self.hangs else None,
            native_types=self.native_types,
        )
        deadline = Deadline()

        def on_event(event: RunEvent) -> None:
            if event.kind == "runner_on_start" and event.data["task"] == self.hangs:
                deadline.expire()

        executor = AnsibleExecutor(launcher, rundirs, settings, timeout=deadline)
        outcome = await executor.run(request, on_event)
        artifacts = rundirs.path_of(ref) / "artifacts" / _RUN
        return read_record(outcome, artifacts, site / "out", Masks(self.masked.items()))


def _write(path: Path, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if data.startswith(b"#!"):
        path.chmod(0o755)
