"""Each file in fixtures has one problem, and the expected message in its comments."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.config.watches import load
from operator_runner.core.errors import ConfigError

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.yaml"))
MARK = "# problem: "


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_every_problem_is_reported_with_line_path_and_hint(path: Path, project: Path) -> None:
    """The problems are exactly those in the comments of the file."""
    comments = [line for line in path.read_text().splitlines() if line.startswith(MARK)]
    expected = [
        f"{path}:{comment.removeprefix(MARK)}".replace("{cwd}", str(project)).replace(
            "{folder}", str(path.parent)
        )
        for comment in comments
    ]

    with pytest.raises(ConfigError) as caught:
        load(path, {})

    assert sorted(caught.value.problems) == sorted(expected)


def test_problems_of_all_entries_are_reported_together(project: Path) -> None:
    """All errors of a file are reported at once."""
    path = project / "watches.yaml"
    path.write_text("- {version: v1, role: web}\n- {kind: Web}\n- {version: v1, kind: Web}\n")

    with pytest.raises(ConfigError) as caught:
        load(path, {})

    paths = [problem.split(": ")[1] for problem in caught.value.problems]
    assert paths == ["[0].kind", "[1].version", "[1]", "[2]"]


def test_warnings_are_reported_with_the_problems(project: Path) -> None:
    """A misspelled key is often the cause of a missing one."""
    path = project / "watches.yaml"
    path.write_text("- {version: v1, kind: Web, rol: web}\n")

    with pytest.raises(ConfigError) as caught:
        load(path, {})

    assert len(caught.value.problems) == 1
    assert caught.value.warnings == (
        f"{path}:1: [0].rol: unknown key, ignored; did you mean role?",
    )


def test_a_missing_file_names_the_flag(tmp_path: Path) -> None:
    """The error for a wrong path has the flag for another one."""
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError, match=r"no such file; .* --watches-file"):
        load(path, {})


def test_a_file_of_bytes_is_refused(tmp_path: Path) -> None:
    """A watches file must be UTF-8."""
    path = tmp_path / "watches.yaml"
    path.write_bytes(b"# a\n# M\xfcller\n")
    with pytest.raises(ConfigError, match=r"yaml:2: not UTF-8 text; save the file as UTF-8"):
        load(path, {})


def test_control_characters_are_refused(tmp_path: Path) -> None:
    """What YAML forbids is reported as such."""
    path = tmp_path / "watches.yaml"
    path.write_text("- version: v1\n  kind: \x01\n")
    with pytest.raises(ConfigError, match=r"yaml:2: invalid YAML: control character U\+0001;"):
        load(path, {})


def test_tabs_are_refused_with_the_solution(tmp_path: Path) -> None:
    """YAML does not permit them as indentation."""
    path = tmp_path / "watches.yaml"
    path.write_text("- version: v1\n\tkind: Web\n")
    with pytest.raises(ConfigError, match=r"yaml:2: invalid YAML: .*; indent with spaces$"):
        load(path, {})


@pytest.mark.parametrize("key", ["when: [a]", "wakeOn: [{version: v1, kind: Pod, fields: a}]"])
def test_a_value_of_the_wrong_type_is_one_problem(project: Path, key: str) -> None:
    """It is not also reported as empty."""
    path = project / "watches.yaml"
    path.write_text(f"- version: v1\n  kind: Web\n  role: web\n  {key}\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    (problem,) = caught.value.problems
    assert ": expected " in problem


def test_line_numbers_do_not_depend_on_the_environment(project: Path) -> None:
    """A value of several lines does not change the line numbers after it."""
    path = project / "watches.yaml"
    path.write_text("- version: v1\n  kind: Web\n  $MORE\n  role: none\n")

    with pytest.raises(ConfigError) as caught:
        load(path, {"MORE": "vars:\n    a: 1\n    b: 2"})

    assert caught.value.problems[0].startswith(f"{path}:4: [0].role: role: none was not found")
