"""A process sends its memory away and goes on with it when it comes back."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from operator_runner.ansible.forkserver import compressed_memory, swap
from tests.support.waiting import eventually

CYCLES = 50
PROGRAM = """
import array, gc, hashlib, os, signal, socket, sys
from operator_runner.ansible.forkserver import swap

channel = socket.socket(fileno=int(sys.argv[1]))
answers = os.fdopen(int(sys.argv[2]), "w")

def anonymous_memory():
    with open("/proc/self/smaps_rollup") as rollup:
        (line,) = [line for line in rollup if line.startswith("Anonymous:")]
    return int(line.split()[1])

objects = [{str(number): [number, "text " * 3]} for number in range(50_000)]
large = bytearray(os.urandom(1 << 16)) * 200
before = repr(objects), hashlib.sha256(large).hexdigest()
received = []
signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
print("ready", file=answers, flush=True)
for cycle in range(int(sys.argv[3])):
    swapped = swap.swap_out(channel)
    # What is allocated and freed now uses all that the allocators remember.
    objects.append({str(cycle): [object() for _ in range(1_000)]})
    objects.pop()
    large.extend(b"x" * 100_000)
    del large[-100_000:]
    gc.collect()
    same = (repr(objects), hashlib.sha256(large).hexdigest()) == before
    print(swapped, same, anonymous_memory(), len(received), file=answers, flush=True)
"""


@contextmanager
def _program(cycles: int) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """Start a process that swaps out; give it and the other end of its channel."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arguments = [sys.executable, "-c", PROGRAM, str(theirs.fileno()), "1", str(cycles)]
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                yield process, ours
            finally:
                process.kill()


def _receive(channel: socket.socket) -> deque[bytes]:
    chunks = compressed_memory.receive(channel)
    assert chunks is not None
    return chunks


def _anonymous_kilobytes(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    (line,) = [line for line in rollup.splitlines() if line.startswith("Anonymous:")]
    return int(line.split()[1])


def _answer(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_a_process_goes_on_with_the_memory_that_it_gets_back() -> None:
    """Its objects are the same after many times, its heap is intact and does not grow."""
    sizes = []
    with _program(CYCLES) as (process, channel):
        for _ in range(CYCLES):
            compressed_memory.give_back(channel, _receive(channel))
            swapped, same, kilobytes, _ = _answer(process)
            assert (swapped, same) == ("True", "True")
            sizes.append(int(kilobytes))
        assert process.wait() == 0
    assert max(sizes[5:]) - min(sizes[5:]) < 4 * 1024


def test_the_memory_is_away_meanwhile() -> None:
    """Less than 4 MiB remain, and what is kept is smaller than it was."""
    with _program(1) as (process, channel):
        chunks = _receive(channel)
        kept = sum(map(len, chunks))
        eventually(lambda: _anonymous_kilobytes(process.pid) < 4 * 1024)
        compressed_memory.give_back(channel, chunks)
        swapped, same, kilobytes, _ = _answer(process)
        assert (swapped, same) == ("True", "True")
        assert kept < int(kilobytes) * 1024 / 2


def test_a_signal_is_handled_after_the_memory_is_back() -> None:
    """Python could not run its handler before."""
    with _program(1) as (process, channel):
        chunks = _receive(channel)
        process.send_signal(signal.SIGUSR1)
        compressed_memory.give_back(channel, chunks)
        assert _answer(process)[-1] == "1"


def test_a_signal_that_ends_the_process_does_so_at_once() -> None:
    """It does not wait for its memory."""
    with _program(1) as (process, channel):
        _receive(channel)
        process.terminate()
        assert process.wait() == -signal.SIGTERM


def test_a_process_whose_memory_is_lost_ends() -> None:
    """It never goes on without it."""
    with _program(1) as (process, channel):
        _receive(channel)
        channel.close()
        assert process.wait() in {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT}


def test_a_process_that_ends_before_all_is_received_is_an_error() -> None:
    """What has been received of it is of no use."""
    with _program(1) as (process, channel):
        process.kill()
        process.wait()
        with pytest.raises((EOFError, ConnectionResetError)):
            compressed_memory.receive(channel)


def test_a_refusal_leaves_the_memory_where_it_is() -> None:
    """There is nothing to keep."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        swap.refuse(theirs)
        assert compressed_memory.receive(ours) is None
