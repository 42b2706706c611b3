"""The stored state of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.devcluster.locations import Home
from operator_runner.devcluster.process import Process
from operator_runner.devcluster.supervision import ClusterState, Node, Part, load_state, save_state

_ETCD = Part("etcd", ("/bin/etcd", "--name=default"), "http://127.0.0.1:1/readyz")
_FULL = ClusterState(
    boot="b1",
    server="https://10.186.0.1:6443",
    slot=0,
    nodes=(Node(Process(10, 100), Process(11, 101)), Node(Process(20, 200), Process(21, 201))),
    parts=(_ETCD, Part("kubelet", ("kubelet",), "http://10.186.0.2:10248/healthz", node=2)),
    processes={"etcd": Process(12, 102)},
    ready=True,
)


@pytest.mark.parametrize("state", [_FULL, ClusterState("b1", "https://127.0.0.1:1", slot=None)])
def test_a_stored_state_is_loaded_unchanged(tmp_path: Path, state: ClusterState) -> None:
    """Storing and loading changes nothing."""
    home = Home(tmp_path)
    save_state(home, state)
    assert load_state(home) == state


def test_the_state_is_private(tmp_path: Path) -> None:
    """Command lines of programs are private."""
    home = Home(tmp_path)
    save_state(home, _FULL)
    assert home.state.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"boot": "b1", "node": 3}'])
def test_a_damaged_state_counts_as_absent(tmp_path: Path, content: str) -> None:
    """A file cut short or of another version does not stop the next command."""
    home = Home(tmp_path)
    home.state.write_text(content)
    assert load_state(home) is None


def test_without_a_file_there_is_no_state(tmp_path: Path) -> None:
    """A cluster that was never started has no state."""
    assert load_state(Home(tmp_path)) is None


def test_starting_a_part_again_replaces_its_process() -> None:
    """A part is listed once, with the process that runs now."""
    again = _FULL.with_process(_ETCD, Process(99, 999))
    assert again.parts == _FULL.parts
    assert again.processes["etcd"] == Process(99, 999)


def test_a_part_with_another_command_replaces_the_former() -> None:
    """Where the command line of a part changes, the new one is kept."""
    changed = Part("etcd", ("/bin/etcd", "--name=other"), _ETCD.health)
    state = _FULL.with_process(changed, Process(99, 999))
    assert state.part("etcd") == changed
    assert len(state.parts) == len(_FULL.parts)
