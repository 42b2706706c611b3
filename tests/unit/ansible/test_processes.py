"""Processes of a run that are forked, and ended by signals."""

from __future__ import annotations

import subprocess
import sys

_ENDS_CHILDREN_AT_ONCE = """
import os, signal, sys
from operator_runner.ansible.forkserver.forks import fork

signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
for _ in range(100):
    child = fork()
    if not child:
        signal.alarm(10)
        signal.pause()
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    if os.WTERMSIG(status) != signal.SIGTERM:
        sys.exit(f"{os.WTERMSIG(status)} ended it")
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_child_is_ended_however_early() -> None:
    """Python discards a signal that arrives before the child runs; fork() does not."""
    done = subprocess.run(
        [sys.executable, "-c", _ENDS_CHILDREN_AT_ONCE], capture_output=True, text=True, check=False
    )
    # The parent takes signals as before.
    assert (done.returncode, done.stdout) == (7, "set()\n"), done.stderr
