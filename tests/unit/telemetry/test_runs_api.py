"""The output of a run in progress, as the API sends it."""

from __future__ import annotations

from operator_runner.telemetry.runs.api import write_new


async def test_output_that_is_added_while_a_slow_reader_is_waited_for_is_sent() -> None:
    """No text is skipped, and none is sent twice."""
    output, later, received = ["sent", "1", "2"], ["3", "4"], list[bytes]()

    async def write(text: bytes) -> None:
        received.append(text)
        if later:
            output.append(later.pop(0))

    assert await write_new(write, output, 1) == 5
    assert received == [b"1\n", b"2\n", b"3\n", b"4\n"]
