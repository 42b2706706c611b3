"""Messages of a callback plugin, and other output beside the events of tasks."""

from __future__ import annotations

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project

PLUGIN = """
import base64, json, os, sys
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "talking"
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_play_start(self, play):
        self._display.v("begin of a long message " + "größe " * 3000)
        self._display.v("between two messages of the same event\\n\\nand its last line")
        self._display.vv("of a host", host="localhost")
        self._display.warning("a warning")
        self._display.display("to stderr", stderr=True)
        self._display.display("without an end", newline=False)
        self._display.v("after it")
        print("a part ", end="")
        self._display.v("inside a line")
        print("and its rest \\u20ac")
        sys.stdout.flush()

    def v2_runner_on_ok(self, result):
        self._display.v("of a result")
        # Text that is divided within a character, and something that looks like an event.
        os.write(1, "half: \\u20ac"[:-1].encode() + "\\u20ac".encode()[:2])
        os.write(1, "\\u20ac".encode()[2:] + b"\\n")
        for content in ({}, {"event": "without an id"}, {"event": "written", "uuid": "0"}):
            text = base64.b64encode(json.dumps(content).encode()).decode()
            print(f"\\x1b[K{text}\\x1b[{len(text)}D\\x1b[K{content}")
"""
PLAYS = """
- name: Play
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Task
      debug: {msg: x}
    - name: Command
      command: echo said
"""


@pytest.mark.parametrize("verbosity", [0, 2])
def test_messages_are_the_same(both: Both, verbosity: int) -> None:
    """Events of messages, their ids, order and lines, and output that belongs to no event."""
    files = {"site.yml": PLAYS, "callback_plugins/talking.py": PLUGIN}
    record = both(Project(files=files, verbosity=verbosity))
    assert record.outcome.successful, record.outcome.failures
    assert "a part " in record.stdout
    assert "half: \u20ac" in record.stdout
    assert ("of a result" in record.stdout) == (verbosity > 0)
    assert ("größe größe" in record.stdout) == (verbosity > 0)
    counters = [event["counter"] for event in record.events]
    assert counters == sorted(counters)
