"""Ask the user before each task (`--step`): the play asks, and the operator has the answer.

The play has no terminal, because ansible-runner reads its output. Its question is a line of that
output, which comes after the events of earlier tasks, and it reads the answer from a named pipe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operator_runner.core.model import Json

VARIABLE = "OPERATOR_RUNNER_ANSWERS"
"""Path of the named pipe, in the environment of a run that asks."""
_CHOICES = "(N)o/(y)es/(c)ontinue:"
"""The end of Ansible's question."""


def question_of(event: Json) -> str:
    """Return the question of an event of ansible-runner, empty if there is none. Pure."""
    text = str(event.get("stdout") or "").rstrip()
    return text if event.get("event") == "verbose" and text.endswith(_CHOICES) else ""


@contextmanager
def open_answers(pipe: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that passes an answer to the play; the pipe exists while the block lasts.

    Raises OSError.
    """
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe, 0o600)
    # For reading too: opening it does not wait for the play, nor writing for a question.
    descriptor = os.open(pipe, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield lambda answer: _write_line(descriptor, answer)
    finally:
        os.close(descriptor)
        pipe.unlink(missing_ok=True)


def _write_line(descriptor: int, text: str) -> None:
    os.write(descriptor, f"{text.strip()}\n".encode())


# In the play ----------------------------------------------------------------------------


def install() -> None:
    """Ask the operator instead of the terminal of this process."""
    # Imported here because the operator's own process does not import Ansible.
    from operator_runner.ansible.patches.replacing import wrap  # noqa: PLC0415

    wrap("ansible.utils.display:Display.prompt", _prompt)


def _prompt(original: Any, display: Any, msg: str, private: bool = False) -> str:
    if private or not msg.rstrip().endswith(_CHOICES):
        return str(original(msg, private))
    display.display(msg.rstrip())
    with Path(os.environ[VARIABLE]).open(encoding="utf-8") as answers:
        return answers.readline().strip()
