"""A process sends its memory away and goes on with it when it comes back."""

from __future__ import annotations

import array
import fcntl
import signal
import socket
import subprocess
import sys
import termios
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from operator_runner.ansible.forkserver import compressed_memory, swap
from tests.support.waiting import eventually

CYCLES = 50
PROGRAM = """
import array, gc, hashlib, os, signal, socket, sys
from operator_runner.ansible.forkserver import swap

control = socket.socket(fileno=int(sys.argv[1]))
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
    _, (descriptor,), *_ = socket.recv_fds(control, 1, 1)
    with socket.socket(fileno=descriptor) as channel:
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
def _program(
    cycles: int, *options: str, program: str = PROGRAM
) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """Start a process that swaps out; give it and the socket that requests it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arguments = [*options, "-c", program, str(theirs.fileno()), "1", str(cycles)]
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                yield process, ours
            finally:
                process.kill()


@contextmanager
def _requested(control: socket.socket) -> Iterator[socket.socket]:
    """Have the process swap out; give the channel for its memory."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            socket.send_fds(control, [b" "], [theirs.fileno()])
        ours.settimeout(180)
        yield ours


@contextmanager
def _swapped(control: socket.socket) -> Iterator[tuple[socket.socket, deque[bytes]]]:
    """Have the process swap out; give the channel and the memory."""
    with _requested(control) as channel:
        chunks = compressed_memory.receive(channel)
        assert chunks is not None
        yield channel, chunks


def _anonymous_kilobytes(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    (line,) = [line for line in rollup.splitlines() if line.startswith("Anonymous:")]
    return int(line.split()[1])


def _unread_bytes(channel: socket.socket) -> int:
    """Return how much of what was sent the other end has not received."""
    size = array.array("i", [0])
    fcntl.ioctl(channel, termios.TIOCOUTQ, size)
    return size[0]


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Stop the process in its system call, and have it go on."""
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    process.send_signal(signal.SIGCONT)


def _answer(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_a_process_goes_on_with_the_memory_that_it_gets_back() -> None:
    """Its objects are the same after many times, its heap is intact and does not grow."""
    sizes = []
    with _program(CYCLES) as (process, control):
        for _ in range(CYCLES):
            with _swapped(control) as (channel, chunks):
                compressed_memory.give_back(channel, chunks)
                swapped, same, kilobytes, _ = _answer(process)
            assert (swapped, same) == ("True", "True")
            sizes.append(int(kilobytes))
        assert process.wait() == 0
    assert max(sizes[5:]) - min(sizes[5:]) < 4 * 1024


def test_the_memory_is_away_meanwhile() -> None:
    """Less than 4 MiB remain, and what is kept is smaller than it was."""
    with _program(1) as (process, control), _swapped(control) as (channel, chunks):
        kept = sum(map(len, chunks))
        eventually(lambda: _anonymous_kilobytes(process.pid) < 4 * 1024)
        compressed_memory.give_back(channel, chunks)
        swapped, same, kilobytes, _ = _answer(process)
        assert (swapped, same) == ("True", "True")
        assert kept < int(kilobytes) * 1024 / 2


def test_a_signal_is_handled_after_the_memory_is_back() -> None:
    """Python could not run its handler before."""
    with _program(1) as (process, control), _swapped(control) as (channel, chunks):
        process.send_signal(signal.SIGUSR1)
        compressed_memory.give_back(channel, chunks)
        assert _answer(process)[-1] == "1"


def test_a_process_that_is_stopped_while_it_waits_goes_on() -> None:
    """Container runtimes stop idle processes too (docker pause)."""
    with _program(1) as (process, control), _swapped(control) as (channel, chunks):
        _interrupt(process)
        compressed_memory.give_back(channel, chunks)
        assert _answer(process)[:2] == ["True", "True"]


def test_a_signal_that_ends_the_process_does_so_at_once() -> None:
    """It does not wait for its memory."""
    with _program(1) as (process, control), _swapped(control):
        process.terminate()
        assert process.wait() == -signal.SIGTERM


@pytest.mark.parametrize("options", [(), ("-X", "faulthandler")], ids=["default", "faulthandler"])
def test_a_process_whose_memory_is_lost_ends(options: tuple[str, ...]) -> None:
    """It never goes on without it."""
    with _program(1, *options) as (process, control):
        with _swapped(control):
            pass
        assert process.wait() == -signal.SIGSEGV


def test_memory_that_is_sent_in_part_is_not_waited_for() -> None:
    """A stopped process goes on with the next call, so that the rest is lost; it ends."""
    with _program(1) as (process, control):
        with _requested(control) as channel:
            channel.recv(swap.SIZE_BYTES, socket.MSG_PEEK)  # it sends, until the buffer is full
            _interrupt(process)
            with pytest.raises(EOFError):
                compressed_memory.receive(channel)
        assert process.wait() == -signal.SIGSEGV


def test_a_process_that_receives_its_memory_in_part_ends() -> None:
    """What follows would be in the wrong places."""
    with _program(1) as (process, control), _swapped(control) as (channel, chunks):
        compressed_memory.give_back(channel, deque([chunks.popleft()]))
        eventually(lambda: _unread_bytes(channel) == 0)
        _interrupt(process)
        with suppress(OSError):  # it may end before it has read all
            compressed_memory.give_back(channel, chunks)
        assert process.wait() in {-signal.SIGSEGV, -signal.SIGBUS}


def test_the_memory_stays_if_there_is_no_room_for_the_calls() -> None:
    """The process goes on, although its address space is limited."""
    limit = """
import resource
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
"""
    with _program(1, program=PROGRAM.replace('print("ready"', f'{limit}print("ready"')) as (
        process,
        control,
    ):
        with _requested(control) as channel:
            assert compressed_memory.receive(channel) is None
        assert _answer(process)[:2] == ["False", "True"]


def test_a_process_that_ends_before_all_is_received_is_an_error() -> None:
    """What has been received of it is of no use."""
    with _program(1) as (process, control), _requested(control) as channel:
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
