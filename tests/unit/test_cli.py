"""The commands that need no cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from operator_runner import __version__
from operator_runner.cli import main
from operator_runner.config.watches import schema

# Imported before sockets are refused: ansible-core calls getaddrinfo when it is imported.
from operator_runner.tools.validate import check as _check  # noqa: F401
from tests.support.operator import REPOSITORY

PROGRAMS = Path(sys.executable).parent
GOOD = """\
- version: v1
  group: shop.example.com
  kind: Web
  role: web
  finalizer: {name: shop.example.com/web, vars: {state: absent}}
- version: v1
  kind: Backup
  playbook: site.yml
  finalizer: {name: shop.example.com/backup, role: web}
"""
BAD = """\
- {version: v1, role: web}
- {version: v1, kind: Web, rol: web}
- {version: v1, kind: Shop, role: none, reconcilePeriod: 1d}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with the role `web` and the playbook `site.yml` in it."""
    (tmp_path / "roles" / "web" / "tasks").mkdir(parents=True)
    (tmp_path / "roles" / "web" / "tasks" / "main.yml").write_text("[]\n")
    (tmp_path / "site.yml").write_text("[]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def test_an_interrupted_command_has_the_status_of_the_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever Ctrl-C ends it; the shell's user needs no message."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("operator_runner.commands.schema", interrupt)
    ended = call("schema")
    assert (ended.exit_code, ended.output) == (130, "")


def test_validate_prints_the_content_of_each_kind(project: Path) -> None:
    """There is a line for each kind, with paths as they were found; a missing CRD is a warning."""
    (project / "watches.yaml").write_text(GOOD)
    role = project / "roles" / "web"

    result = call("validate")

    assert result.exit_code == 0
    missing = "Warning: watches.yaml:3: shop.example.com/v1, Kind=Web has no CRD in the project; "
    assert result.stderr.startswith(missing)
    assert result.stderr.count("\n") == 1
    assert result.stdout == (
        "watches.yaml: valid, kinds: 2\n"
        f"  shop.example.com/v1, Kind=Web: role {role};"
        " finalizer shop.example.com/web: the same with state\n"
        f"  /v1, Kind=Backup: playbook {project}/site.yml;"
        f" finalizer shop.example.com/backup: role {role}\n"
    )


@pytest.mark.parametrize("words", [("run", "show"), ("run", "logs"), ("runs", "show")])
def test_run_show_is_runs_show(words: tuple[str, str]) -> None:
    """`run` alone starts the operator and has no arguments, so that nothing else is meant."""
    result = call(*words, "--help")
    assert (result.exit_code, f"runs {words[1]}" in result.stdout) == (0, True)


def test_runs_logs_reports_an_invalid_name_as_wrong_usage() -> None:
    """As all commands with an argument KIND/NAME do."""
    result = call("runs", "logs", "pages/")
    assert (result.exit_code, "write KIND/NAME" in result.stderr) == (2, True)


def test_validate_reports_everything_as_run_does(project: Path) -> None:
    """Both give the same lines, every problem at once, and the same exit status."""
    (project / "bad.yaml").write_text(BAD)

    validated = call("validate", "bad.yaml")
    # In a process of its own because it configures the logging.
    run = subprocess.run(
        [PROGRAMS / "operator-runner", "run", "--watches-file=bad.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (validated.exit_code, run.returncode) == (1, 1)
    assert validated.stderr == run.stderr
    starts = [line.split(":")[:4] for line in validated.stderr.splitlines()]
    assert [":".join(start) for start in starts] == [
        "Warning: bad.yaml:2: [1].rol",
        "Error: bad.yaml:1: [0].kind",
        "Error: bad.yaml:2: [1]",
        "Error: bad.yaml:3: [2].role",
        "Error: bad.yaml:3: [2].reconcilePeriod",
        "Failed to load watches.",
    ]


def test_validate_shows_warnings_of_a_good_file(project: Path) -> None:
    """Warnings are printed, and the exit status stays 0."""
    (project / "watches.yaml").write_text(GOOD + "  maxWorkers: 4\n")

    result = call("validate")

    assert result.exit_code == 0
    assert "Warning: watches.yaml:10: [1].maxWorkers: unknown key, ignored" in result.stderr


def test_validate_seeks_roles_as_run_does(project: Path) -> None:
    """Its flags for roles and collections are those of run."""
    role = project / "collections/ansible_collections/a/b/roles/c"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks" / "main.yml").write_text("[]\n")
    (project / "shared" / "db").mkdir(parents=True)
    (project / "watches.yaml").write_text(
        "- {version: v1, kind: C, role: a.b.c}\n- {version: v1, kind: D, role: db}\n"
    )

    result = call(
        "validate", "--ansible-roles-path=shared", "--ansible-collections-path=collections"
    )

    assert result.exit_code == 0
    assert f"Kind=C: role {role}\n" in result.stdout
    assert f"Kind=D: role {project}/shared/db\n" in result.stdout


def test_the_schema_is_printed_as_json() -> None:
    """An editor can read the output of the command."""
    assert json.loads(call("schema").stdout) == schema()


@pytest.mark.parametrize("program", ["operator-runner", "ansible-operator"])
def test_both_programs_print_their_own_name(program: str, tmp_path: Path) -> None:
    """Entry points and arguments of ansible-operator's images work under either name."""

    def help_of(*args: str) -> str:
        return subprocess.check_output([PROGRAMS / program, *args], cwd=tmp_path, text=True)

    assert help_of("version") == f"{program} {__version__}\n"
    assert help_of("--version") == f"{program}, version {__version__}\n"
    assert help_of("run", "--watches-file=./watches.yaml", "--help").startswith(
        f"Usage: {program} run [OPTIONS]"
    )


_RUN = """\
import sys

import operator_runner.cli

operator_runner.cli.main.commands["run"]
import operator_runner.app.operator

print(*sys.modules)
"""


def test_the_operator_imports_neither_tools_nor_the_local_cluster() -> None:
    """`run` imports only the modules that it needs."""
    others = ("operator_runner.tools", "operator_runner.devcluster")
    assert [name for name in _imported_by_run() if name.startswith(others)] == []


def test_the_operator_imports_neither_ansible_nor_the_clients_of_kubernetes() -> None:
    """Plays are run by other processes; of the package kubernetes only credentials are used."""
    others = {"ansible", "ansible_runner", "kubernetes.dynamic", "kubernetes.aio.dynamic"}
    others |= {"kubernetes.client.models.v1_pod", "kubernetes.stream", "oauthlib", "requests"}
    # Of classes and functions that the operator uses rarely or never.
    others |= {"jinja2", "pydantic", "rich"}
    # Traces are off unless a variable selects an exporter.
    others |= {"opentelemetry", "google.protobuf"}
    assert others & {*_imported_by_run()} == set()


def _imported_by_run() -> list[str]:
    loaded = subprocess.check_output([sys.executable, "-c", _RUN], text=True).split()
    assert "operator_runner.app.operator" in loaded
    return loaded


def test_the_help_lists_every_command() -> None:
    """Each command can be imported, is listed under its own name, and has a short help."""
    lines = call("--help").stdout.partition("Commands:\n")[2].splitlines()

    listed = dict(line.split(maxsplit=1) for line in lines)
    assert sorted(listed) == sorted(main.commands)
    assert {name: command.name for name, command in main.commands.items()} == {
        name: name for name in main.commands
    }


@pytest.mark.parametrize("group", ["", "cluster", "cluster olm", "create", "runs"])
def test_the_help_of_a_group_has_the_whole_summary_of_each_command(group: str) -> None:
    """In a terminal of 80 columns, click cuts the first sentence of a longer docstring."""
    lines = call(*group.split(), "--help").stdout.partition("Commands:\n")[2].splitlines()
    assert lines
    assert [line for line in lines if line.endswith("...")] == []


def test_a_mistyped_command_is_answered_with_a_suggestion() -> None:
    """The names are known without an import."""
    assert "Did you mean" in call("undeplo").stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("operator-runner cl", "plain,cluster"),
        ("operator-runner cluster lo", "plain,load"),
        ("operator-runner run --leader-election-i", "plain,--leader-election-id"),
        ("operator-runner get --output ya", "plain,yaml"),
    ],
)
def test_the_shell_completes_commands_and_flags(words: str, expected: str) -> None:
    """Click's completion works with commands that are not imported yet."""
    environment = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "_OPERATOR_RUNNER_COMPLETE": "bash_complete",
    }
    completed = subprocess.check_output(
        [PROGRAMS / "operator-runner"], env={**os.environ, **environment}, text=True
    )
    assert completed.splitlines() == [expected]


_IN_THE_IMAGE = """\
import sys

sys.modules["rich"] = sys.modules["operator_runner.devcluster"] = None
from operator_runner.cli import main

main()
"""


def test_missing_commands_of_the_image_print_a_hint() -> None:
    """Without rich and the local cluster the help lists the other commands, and these work."""

    def help_of(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _IN_THE_IMAGE, *args]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    listed = [
        line.split()[0]
        for line in help_of("--help").stdout.partition("Commands:\n")[2].splitlines()
    ]
    assert {"run", "why", "validate", "undeploy"} <= set(listed)
    assert not {"cluster", "bundle"} & set(listed)
    assert help_of("schema").returncode == 0
    failed = help_of("cluster", "up", "--name=x")
    assert failed.returncode == 1
    assert "cluster is not part of the operator's image; install operator-runner" in failed.stderr


def test_kubectl_finds_the_program_as_a_plugin() -> None:
    """Kubectl calls `kubectl-operator_runner` for `kubectl operator-runner`."""
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-operator_runner"] == scripts["operator-runner"]
