"""A slow reader does not block: records that do not fit are dropped, counted and reported."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from operator_runner.telemetry.output_thread import OutputWriter

_LONG = "x" * 60_000


class Outputs:
    """Pipes, and writers that are started."""

    def __init__(self) -> None:
        self.pipes: list[tuple[int, int]] = []
        self.writers: list[OutputWriter] = []

    def pipe(self) -> tuple[int, int]:
        self.pipes.append(os.pipe())
        return self.pipes[-1]

    def writer(self, limit: int = 1 << 20) -> OutputWriter:
        self.writers.append(OutputWriter(limit))
        self.writers[-1].start()
        return self.writers[-1]


@pytest.fixture
def outputs() -> Iterator[Outputs]:
    """Give pipes and writers; no thread is left that writes to a descriptor used again."""
    made = Outputs()
    yield made
    for reader, _ in made.pipes:
        os.close(reader)
    for output in made.writers:
        output.close(60)
        assert not output.is_stuck
    for _, writer in made.pipes:
        os.close(writer)


def _read(descriptor: int, size: int) -> str:
    found = b""
    while len(found) < size:
        found += os.read(descriptor, size - len(found))
    return found.decode()


def test_text_is_written_in_order(outputs: Outputs) -> None:
    """Two streams that lead to one reader show their records in the order of the calls."""
    reader, writer = outputs.pipe()
    other = os.dup(writer)
    output = outputs.writer()
    expected = ""
    for number in range(500):
        text = f"{number} {'.' * number}\n"
        output.put((writer, other)[number % 2], text)
        expected += text
    assert _read(reader, len(expected)) == expected
    output.close(60)
    os.close(other)
    assert output.dropped == 0


def test_what_does_not_fit_is_dropped_and_counted(outputs: Outputs) -> None:
    """A full pipe does not block; queued records are written once it is read."""
    reader, writer = outputs.pipe()
    output = outputs.writer(4 * len(_LONG))
    for _ in range(20):
        output.put(writer, _LONG)
    dropped = output.dropped
    assert 0 < dropped < 20
    taken = (20 - dropped) * len(_LONG)
    assert _read(reader, taken) == "x" * taken
    output.put(writer, "after")
    assert _read(reader, 5) == "after"
    assert output.dropped == dropped


def test_a_large_record_is_written_if_nothing_waits(outputs: Outputs) -> None:
    """The output of a task may exceed the limit."""
    reader, writer = outputs.pipe()
    outputs.writer(10).put(writer, _LONG * 10)
    assert _read(reader, 10 * len(_LONG)) == _LONG * 10


def test_a_stalled_stream_does_not_stop_the_other(outputs: Outputs) -> None:
    """Standard output that nobody reads leaves standard error as it is."""
    _, stalled = outputs.pipe()
    reader, writer = outputs.pipe()
    output = outputs.writer()
    for _ in range(4):
        output.put(stalled, _LONG)
    output.put(writer, "log line")
    assert _read(reader, 8) == "log line"


def test_a_reader_that_has_ended_ends_no_writer(outputs: Outputs) -> None:
    """Records for it are dropped, those for others are written."""
    reader, writer = os.pipe()
    os.close(reader)
    other_reader, other = outputs.pipe()
    output = outputs.writer()
    output.put(writer, "nobody reads this")
    output.put(other, "this")
    assert _read(other_reader, 4) == "this"
    assert output.dropped == 1
    os.close(writer)


def test_the_end_waits_for_a_slow_reader(outputs: Outputs) -> None:
    """All records that are read in time are written."""
    reader, writer = outputs.pipe()
    output = outputs.writer()
    for _ in range(5):
        output.put(writer, _LONG)
    reading = threading.Thread(target=_read, args=(reader, 5 * len(_LONG)))
    reading.start()
    output.close(60)
    reading.join()
    assert not output.is_stuck


def test_the_end_does_not_wait_for_ever(outputs: Outputs) -> None:
    """A pipe that nobody reads holds the end up to the deadline."""
    _, writer = outputs.pipe()
    output = outputs.writer()
    for _ in range(5):
        output.put(writer, _LONG)
    output.close(0.05)
    assert output.is_stuck


_PROGRAM = """
import sys, time
import structlog
from operator_runner.telemetry import logs, output_thread
logs.configure("json", "info")
with output_thread.in_background() as writer:
    log = structlog.get_logger("program")
    while not writer.dropped:
        log.info("Working", detail="x" * 100_000)
        output_thread.write_play_output("framed " + "y" * 100_000)
    open(sys.argv[1], "w").close()
    while writer._unreported:
        time.sleep(0.01)
    log.info("Done")
"""


def test_dropped_records_are_reported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Once the pipe is read again, a line has the number; logging continues after it."""
    mark = tmp_path_factory.mktemp("mark") / "dropped"
    program = [sys.executable, "-c", _PROGRAM, str(mark)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        deadline = time.monotonic() + 120
        while not mark.exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        assert process.stdout is not None
        lines = process.stdout.read().decode().splitlines()
    (report,) = (number for number, line in enumerate(lines) if '"Dropped log records' in line)
    assert '"records":' in lines[report]
    assert '"Done"' in lines[-1]
    kinds = ["framed" if line.startswith("framed") else "log" for line in lines[:report]]
    assert kinds == ["log", "framed"] * (len(kinds) // 2) + ["log"] * (len(kinds) % 2)
