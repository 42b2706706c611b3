"""Pages whose commands are executed: parsing, and execution in a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_commands import Mode, Step, section, steps
from tests.support.session import CommandError, Session

PAGE = """# A lesson

## First

```console
$ echo one
one
$ cat <<'EOF'
$HOME
EOF
$HOME
$ printf '%s\\n' \\
    a   b
a
```

```yaml
not: ours
```

  ```console background
  $ tail -f log
  ready
  ```

## Last

```console cleanup
$ rm log
```
"""


def step(command: str, *printed: str, mode: Mode = Mode.PLAIN) -> Step:
    return Step(command, printed, mode, 1)


def test_commands_are_read_with_their_output() -> None:
    """Here-documents and continued lines belong to the command, other blocks are ignored."""
    assert steps(PAGE) == [
        Step("echo one", ("one",), Mode.PLAIN, 6),
        Step("cat <<'EOF'\n$HOME\nEOF", ("$HOME",), Mode.PLAIN, 8),
        Step("printf '%s\\n' \\\n    a   b", ("a",), Mode.PLAIN, 12),
        Step("tail -f log", ("ready",), Mode.BACKGROUND, 22),
        Step("rm log", (), Mode.CLEANUP, 29),
    ]


def test_a_section_keeps_its_line_numbers() -> None:
    """Only the section of the heading is read, with line numbers of the page."""
    assert steps(section(PAGE, "Last")) == [Step("rm log", (), Mode.CLEANUP, 29)]


@pytest.mark.parametrize(
    ("printed", "output", "shown"),
    [
        ((), "whatever", True),
        (("a b",), "  a    b  \n", True),
        (("NAME ... AGE", "web ... 1/2"), "NAME  READY   AGE\nweb   1/1     5s\n", False),
        (("NAME ... AGE", "web 1/1 ..."), "NAME  READY   AGE\nweb   1/1     5s\n", True),
        (("b", "a"), "a\nb\n", False),
        (("a", "...", "c"), "a\nb\nc\n", True),
        (("a.c",), "abc", False),
        (("web in 9h 2m10s +1.1 s",), "web in 35s 7m +0.3 s", True),
        (("web in 9h",), "web in -", False),
        (("at 2026-11-23T17:11:12.527Z",), "at 2027-01-01T00:00:00Z", True),
    ],
)
def test_the_output_is_compared_with_the_page(
    printed: tuple[str, ...], output: str, shown: bool
) -> None:
    """Lines in their order, blanks as one, `...` for anything, any time for a time."""
    assert step("x", *printed).is_shown_by(output) is shown


def test_ids_of_runs_are_those_of_the_output() -> None:
    """Each one of the page is replaced by the one in its place."""
    page = step("runs", "0123456789abcdef 3s", "fedcba9876543210 4s")
    output = "RUN AGE\n1111111111111111 9s\n2222222222222222 10s\n"
    assert page.run_ids(output) == {
        "0123456789abcdef": "1111111111111111",
        "fedcba9876543210": "2222222222222222",
    }
    assert page.run_ids("RUN AGE") == {}


@pytest.mark.parametrize(
    ("command", "looks"),
    [
        ("kubectl get pods", True),
        ("kubectl -n web describe pods", True),
        ("kubectl auth can-i get pods --as=jane", True),
        ("curl http://localhost", True),
        ("operator-runner why web", True),
        ("operator-runner runs show 1", True),
        ("operator-runner resume web", False),
        ("cat log", True),
        ("grep -e -v log", True),
        ("cat > file <<'EOF'\na\nEOF", False),
        ("cat >> file <<'EOF'\na\nEOF", False),
        ("kubectl delete pods --all", False),
        ("kubectl getter", False),
    ],
)
def test_only_read_only_commands_are_repeated(command: str, looks: bool) -> None:
    """Commands that read are distinguished from commands that change."""
    assert step(command).only_looks is looks


def test_a_shell_follows_a_page(tmp_path: Path) -> None:
    """Folder and variables are kept, background commands are ended, then the cleanup runs."""
    page = [
        step("mkdir inner && cd inner"),
        step("export WORD=hello"),
        step("bash -c 'echo $WORD there; sleep 1000'", "hello there", mode=Mode.BACKGROUND),
        step("echo $WORD in $(basename $PWD)", "hello in inner"),
        step("touch ../cleaned", mode=Mode.CLEANUP),
    ]
    with Session(tmp_path, {}) as session:
        session.follow(page)
        assert session.attempt("jobs -p") == (0, "")
    assert (tmp_path / "cleaned").exists()


def test_a_command_with_another_output_is_an_error(tmp_path: Path) -> None:
    """The error has the line of the page, the command and its output; the cleanup runs."""
    cleanup = step("touch cleaned", mode=Mode.CLEANUP)
    with Session(tmp_path, {}) as session:
        with pytest.raises(CommandError, match=r"(?s)line 1: echo one.*prints\none\nand not\ntwo"):
            session.follow([step("echo one", "two"), cleanup])
        with pytest.raises(CommandError, match="exit status 3"):
            session.follow([step("(exit 3)"), cleanup])
    assert (tmp_path / "cleaned").exists()


def test_commands_can_be_replaced_or_omitted(tmp_path: Path) -> None:
    """Commands that the test has done already are left out."""
    with Session(tmp_path, {}, {"make venv && ": ""}) as session:
        assert session.run("make venv && echo done") == "done\n"
