"""The output of a Pod: chunks of any size, lost connections, invalid archives."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import zipfile
from pathlib import Path

import pytest

from operator_runner.ansible.jobs.channel import RunChannel, exit_status_of
from operator_runner.core.errors import RunError
from operator_runner.core.model import Json


def archive(**files: str) -> bytes:
    """Return artifacts as ansible-runner sends them: a line with the size, and base64."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, content in files.items():
            target.writestr(name, content)
    data = packed.getvalue()
    return json.dumps({"zipfile": len(data)}).encode() + b"\n" + base64.b64encode(data)


OUTPUT = b"".join(
    [
        b'{"status": "running"}\n',
        b'{"event": "keepalive", "counter": 0}\n',
        b'{"event": "one", "stdout": "a"}\n{"event": "two"}\n',
        b'{"status": "failed"}\n',
        archive(rc="2", stdout="x" * 1000),
        b'{"eof": true}\n',
    ]
)


async def events(channel: RunChannel) -> list[Json]:
    return [event async for event in channel.events()]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
async def test_events_and_exit_status_do_not_depend_on_the_chunks(size: int) -> None:
    """Lines and the archive may be cut anywhere."""
    channel = RunChannel(Path("input"))
    reading = asyncio.create_task(events(channel))
    write = channel.open_writer(0)
    assert write is not None
    for start in range(0, len(OUTPUT), size):
        await write(OUTPUT[start : start + size])
    assert [event["event"] for event in await reading] == ["one", "two"]
    assert channel.is_complete
    assert channel.received == len(OUTPUT)
    assert channel.result() == 2


async def test_a_new_connection_continues_only_at_the_next_byte() -> None:
    """The former one may be lost without notice; what still comes from it is refused."""
    channel = RunChannel(Path("input"))
    first = channel.open_writer(0)
    assert first is not None
    await first(OUTPUT[:10])
    assert channel.open_writer(0) is None
    second = channel.open_writer(10)
    assert second is not None
    with pytest.raises(ConnectionAbortedError):
        await first(b"x")
    await second(OUTPUT[10:])
    assert len(await events(channel)) == 2


async def test_output_waits_while_it_is_not_read() -> None:
    """A role that prints much does not fill the memory of the operator; long lines pass."""
    channel = RunChannel(Path("input"))
    write = channel.open_writer(0)
    assert write is not None
    line = json.dumps({"event": "long", "stdout": "x" * 3_000_000}).encode() + b"\n"
    chunks = [line[start : start + 65536] for start in range(0, len(line), 65536)]

    async def send() -> None:
        for chunk in [*chunks, b'{"eof": true}\n']:
            await write(chunk)

    sending = asyncio.create_task(send())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not sending.done()
    assert channel.received < 2_000_000
    assert [event["event"] for event in await events(channel)] == ["long"]
    await sending


async def test_a_lost_job_ends_the_events_with_its_reason() -> None:
    """Earlier output is passed on first."""
    channel = RunChannel(Path("input"))
    write = channel.open_writer(0)
    assert write is not None
    await write(b'{"event": "one"}\n{"eve')
    channel.fail("Job a: evicted")
    channel.fail("later")
    reading = channel.events()
    assert await anext(reading) == {"event": "one"}
    with pytest.raises(RunError, match="Job a: evicted"):
        await anext(reading)


@pytest.mark.parametrize(
    "text",
    [
        b"oops\n",
        b"[1]\n",
        b"\xff\n",
        b'{"a": ' * 100_000 + b"\n",
        b'{"zipfile": -300}\n',
        b'{"zipfile": []}\n',
        b'{"zipfile": true}\n',
        b'{"event": []}\n',
        b'{"event": "a", "event_data": "b"}\n',
        b'{"event": "a", "stdout": 1}\n',
        b"x" * (17 * 1024 * 1024),
    ],
    ids=lambda text: text[:20].decode(errors="replace").strip(),
)
async def test_output_that_is_not_of_ansible_runner_is_an_error(text: bytes) -> None:
    """As of an image whose ansible-runner prints something else."""
    channel = RunChannel(Path("input"))
    write = channel.open_writer(0)
    assert write is not None
    await write(text)
    channel.fail("the end")
    with pytest.raises(RunError, match="invalid output"):
        await events(channel)


async def test_a_play_that_could_not_run_has_the_explanation() -> None:
    """ansible-runner has no exit status then."""
    channel = RunChannel(Path("input"))
    write = channel.open_writer(0)
    assert write is not None
    await write(b'{"status": "error", "job_explanation": "no ansible"}\n{"eof": true}\n')
    assert await events(channel) == []
    with pytest.raises(RunError, match="no ansible"):
        channel.result()


def test_an_archive_without_an_exit_status_fails_the_run() -> None:
    """It is not extracted, so its paths do not matter."""
    assert exit_status_of(b"") is None
    assert exit_status_of(b"!") is None
    assert exit_status_of(archive(**{"../rc": "0"}).partition(b"\n")[2]) is None
    assert exit_status_of(archive(rc="x").partition(b"\n")[2]) is None
    assert exit_status_of(archive(rc="0").partition(b"\n")[2]) == 0


def test_an_archive_that_cannot_be_read_has_no_exit_status() -> None:
    """The exit status may be encrypted, corrupt, or compressed in an unknown way."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("rc", "0" * 100)
    valid = packed.getvalue()
    central = valid.index(b"PK\x01\x02")
    encrypted, unknown, corrupt = bytearray(valid), bytearray(valid), bytearray(valid)
    encrypted[6] = encrypted[central + 8] = 1
    unknown[8] = unknown[central + 10] = 99
    corrupt[32:36] = b"\xff\xff\xff\xff"
    for each in (encrypted, unknown, corrupt):
        assert exit_status_of(base64.b64encode(each)) is None


@pytest.mark.parametrize(("status", "expected"), [("successful", 0), ("failed", 1)])
async def test_the_last_status_replaces_an_archive_that_is_too_large(
    status: str, expected: int
) -> None:
    """Of an archive with much output nothing is kept in memory."""
    channel = RunChannel(Path("input"))
    reading = asyncio.create_task(events(channel))
    write = channel.open_writer(0)
    assert write is not None
    await write(json.dumps({"status": status}).encode() + b"\n")
    await write(archive(rc="7", stdout="x" * 2_000_000))
    await write(b'{"eof": true}\n')
    assert await reading == []
    assert channel.result() == expected
