"""The comparison itself: it detects differences, and masks only ids, times and temporary names."""

from __future__ import annotations

import json

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.masks import Masks
from tests.contract.ansible.launchers.projects import Project


def test_differences_are_reported(both: Both) -> None:
    """A result, a file and a task that only one launcher gives are named with both values."""
    tasks = "- name: Say\n  copy: {content: '{{ who }}', dest: '{{ out }}/who'}\n"
    with pytest.raises(AssertionError) as excinfo:
        both(Project(tasks), own=lambda name: {"variables": {"who": f"I am {name}"}})
    assert "files.who\n    cold: '0o100644 I am cold'\n    warm: '0o100644 I am warm'" in str(
        excinfo.value
    )
    tasks = "- debug:\n- name: Once\n  debug:\n  when: who == 'cold'\n"
    with pytest.raises(AssertionError, match="events differ"):
        both(Project(tasks), own=lambda name: {"variables": {"who": name}})


def test_masked_ids_keep_their_identity() -> None:
    """Ids keep who refers to whom; words, numbers and paths stay."""
    ids = [f"0000000{number}-0000-0000-0000-000000000000" for number in (1, 2)]
    event = {
        "uuid": ids[0],
        "parent_uuid": ids[1],
        "counter": 4,
        "pid": 12,
        "event_data": {"uuid": ids[0], "res": {"mtime": 1.5, "mode": "0644", "size": 2}},
    }
    assert Masks().value(event) == {
        "uuid": "<id 1>",
        "parent_uuid": "<id 2>",
        "counter": 4,
        "pid": "<id>",
        "event_data": {"uuid": "<id 1>", "res": {"mtime": "<time>", "mode": "0644", "size": 2}},
    }
    assert Masks([("test-1", "<namespace>")]).text("test-1: at 2026-01-02 03:04:05.678") == (
        "<namespace>: at <time>"
    )


def test_tracebacks_keep_the_frames_of_the_module() -> None:
    """Of a traceback the module's own frames stay, wherever the module was put."""
    cold = """Traceback (most recent call last):
  File "/x/AnsiballZ_own.py", line 266, in <module>
    _ansiballz_main(
  File "<frozen runpy>", line 88, in _run_code
  File "/tmp/ansible_own_payload_a/ansible_own_payload.zip/ansible/legacy/own.py", line 3, in main
ValueError: why
"""
    warm = """Traceback (most recent call last):
  File "/x/forkserver/forked_module.py", line 5, in _call
    _loader.run_module(
    ^^^^^^^^^^^^
  File "/roles/own/library/own.py", line 3, in main
    raise ValueError
ValueError: why
"""
    masked = "Traceback (most recent call last):\n<frame own.py line 3, in main>ValueError: why\n"
    assert Masks().text(cold) == Masks().text(warm) == masked
    assert Masks().text(json.dumps(cold)) == Masks().text(json.dumps(warm))
    assert "own.py line 3" in Masks().text(json.dumps(json.dumps(warm)))
