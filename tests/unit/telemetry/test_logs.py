"""One pipeline for our own lines and those of libraries, as JSON and for people."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import pytest
import structlog

from operator_runner.core.errors import ConfigError, Unavailable
from operator_runner.telemetry import logs

pytestmark = pytest.mark.usefixtures("_own_logging")

WEB = {"kind": "NginxOperator", "namespace": "default", "name": "web"}


class Terminal(io.StringIO):
    """A stream whose isatty is True."""

    def isatty(self) -> bool:
        """Claim so."""
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Decode what was written."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def json_logs(level: str = "info", **options: str) -> io.StringIO:
    """Start logging as JSON into the stream that is returned."""
    stream = io.StringIO()
    logs.configure("json", level, stream=stream, **options)
    return stream


def test_a_line_carries_message_values_and_the_bound_object() -> None:
    """Message and values are separate; the object is that of the block."""
    stream = json_logs()
    with structlog.contextvars.bound_contextvars(**WEB, run_id="r1", cause="spec: replicas"):
        structlog.get_logger("operator_runner.x").info("run finished", changed=2)
    (line,) = lines(stream)
    assert list(line)[:9] == [
        *("ts", "level", "logger", "msg"),
        *("kind", "namespace", "name", "run_id", "cause"),
    ]
    del line["ts"]
    assert line == {
        "level": "info",
        "logger": "operator_runner.x",
        "msg": "run finished",
        "kind": "NginxOperator",
        "namespace": "default",
        "name": "web",
        "run_id": "r1",
        "cause": "spec: replicas",
        "changed": 2,
    }


def test_a_repeated_request_is_not_an_error_yet() -> None:
    """Kopf logs each attempt as an error; only the last one remains an error."""
    stream = json_logs()
    kopf = logging.getLogger("kopf._cogs.clients.watching")
    kopf.error("Request attempt #1/9 failed; will retry: GET /apis -> 429")
    kopf.error("Request attempt #9/9 failed; escalating: GET /apis -> 429")
    assert [line["level"] for line in lines(stream)] == ["warning", "error"]


def test_lines_have_no_blanks_between_their_parts() -> None:
    """As zap writes them, so that searches in logs of ansible-operator still match."""
    stream = json_logs()
    structlog.get_logger("x").info("run finished", resource={"kind": "Echo", "size": 2})
    assert '"msg":"run finished","resource":{"kind":"Echo","size":2}' in stream.getvalue()


def test_a_bound_object_is_only_in_the_lines_of_its_block() -> None:
    """The line after the block has no object."""
    stream = json_logs()
    log = structlog.get_logger("operator_runner.x")
    with structlog.contextvars.bound_contextvars(**WEB):
        log.info("inside")
    log.info("outside")
    inside, outside = lines(stream)
    assert inside["name"] == "web"
    assert not WEB.keys() & outside.keys()


async def test_two_tasks_do_not_see_each_others_object() -> None:
    """Reconciles at the same time keep their lines apart."""
    stream = json_logs()
    both_inside = asyncio.Barrier(2)

    async def reconcile(name: str) -> None:
        with structlog.contextvars.bound_contextvars(name=name):
            await both_inside.wait()
            structlog.get_logger("operator_runner.x").info("running", expected=name)

    await asyncio.gather(reconcile("a"), reconcile("b"))
    assert [line["name"] == line["expected"] for line in lines(stream)] == [True, True]


def test_lines_of_a_library_take_the_same_way() -> None:
    """Kopf's warnings come as JSON and name their object like ours."""
    stream = json_logs()
    ref = {"kind": "NginxOperator", "namespace": "default", "name": "web"}
    logging.getLogger("kopf.objects").warning("watch of %s broke", "pods", extra={"k8s_ref": ref})
    (line,) = lines(stream)
    assert (line["msg"], line["level"], line["logger"]) == (
        *("watch of pods broke", "warning", "kopf.objects"),
    )
    assert {key: line[key] for key in ref} == ref


@pytest.mark.parametrize(("level", "heard"), [("info", False), ("debug", True), ("2", True)])
def test_details_of_kopf_are_logged_only_at_debug(level: str, heard: bool) -> None:
    """Kopf logs each step at INFO, which is only useful for debugging."""
    stream = json_logs(level)
    logging.getLogger("kopf.activities").info("Initial authentication has been initiated.")
    assert (len(lines(stream)) == 1) is heard


def test_response_bodies_are_not_logged_even_at_debug() -> None:
    """The Kubernetes client logs bodies at DEBUG, and a body may be a Secret."""
    stream = json_logs("debug")
    logging.getLogger("kubernetes.client.rest").debug("response body: %s", "{}")
    assert lines(stream) == []


def test_an_exception_is_structured_and_shows_no_locals() -> None:
    """Frames have file, line and name; the values of variables might be secrets."""
    stream = json_logs()

    def fail(password: str) -> None:
        raise ValueError(len(password))

    try:
        fail("s3cr3t")
    except ValueError:
        structlog.get_logger("operator_runner.x").exception("broke")
    (line,) = lines(stream)
    assert line["error"] == "ValueError: 6"
    (exception,) = line["exception"]
    assert exception["exc_type"] == "ValueError"
    assert exception["frames"][-1]["name"] == "fail"
    assert "s3cr3t" not in stream.getvalue()


def test_below_the_stacktrace_level_only_the_error_is_named() -> None:
    """Our errors are sentences; their tracebacks are logged from the configured level on."""
    stream = json_logs(stacktrace_level="panic")
    error = Unavailable("the API server does not answer")
    structlog.get_logger("operator_runner.x").error("read failed", exc_info=error)
    (line,) = lines(stream)
    assert line["error"] == "the API server does not answer"
    assert "exception" not in line


def test_secrets_are_redacted_on_every_way() -> None:
    """Our values, library messages and exception texts all lose their secrets."""
    stream = json_logs()
    structlog.get_logger("operator_runner.x").info("sent", authorization="Bearer abcdef0123456789")
    logging.getLogger("aiohttp").warning("sent Bearer abcdef0123456789")
    logging.getLogger("aiohttp").warning("no", exc_info=ValueError("Bearer abcdef0123456789"))
    assert "abcdef0123456789" not in stream.getvalue()
    assert len(lines(stream)) == 3


def test_without_an_encoder_the_stream_decides() -> None:
    """A terminal gets text, a pipe gets JSON."""
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        logs.configure(None, "info", stream=stream)
        structlog.get_logger("operator_runner.x").info("hello")
    assert not terminal.getvalue().startswith("{")
    assert lines(pipe)[0]["msg"] == "hello"


def test_the_console_shows_object_message_and_task_in_one_line() -> None:
    """Object, message and task are first; without a terminal there are no colours."""
    stream = io.StringIO()
    logs.configure("console", "info", stream=stream)
    with structlog.contextvars.bound_contextvars(**WEB, run_id="0123456789abcdef"):
        structlog.get_logger("operator_runner.x").info(
            "task ok", task="Make the Deployment", n="a b"
        )
    _, _, text = stream.getvalue().partition(" ")
    assert text == (
        "info  NginxOperator default/web: task ok 'Make the Deployment' n='a b' run_id=01234567\n"
    )


def test_the_console_shows_the_trace_without_its_span() -> None:
    """The id of the trace is enough to find it."""
    stream = io.StringIO()
    logs.configure("console", "info", stream=stream)
    with structlog.contextvars.bound_contextvars(trace_id="5573a2", span_id="4f2e45"):
        structlog.get_logger("operator_runner.x").info("Reconciling")
    assert stream.getvalue().endswith("Reconciling trace_id=5573a2\n")


def test_longer_texts_stand_below_their_line_on_the_console() -> None:
    """The reason of a failure often has several lines; empty values are not shown."""
    stream = io.StringIO()
    logs.configure("console", "info", stream=stream)
    reason = "no such attribute\nOrigin: main.yml:3"
    structlog.get_logger("operator_runner.x").error("Failed", task="", path=None, reason=reason)
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith(" error Failed")
    assert rest == ["    reason:", "      no such attribute", "      Origin: main.yml:3"]


def test_colours_are_for_terminals() -> None:
    """A terminal gets escape sequences."""
    stream = Terminal()
    logs.configure("console", "info", stream=stream)
    structlog.get_logger("operator_runner.x").info("hello")
    assert "\x1b[" in stream.getvalue()


def test_a_traceback_on_the_console_is_plain_text() -> None:
    """The traceback follows its line, as Python writes it."""
    stream = io.StringIO()
    logs.configure("console", "info", stream=stream)
    try:
        int("no")
    except ValueError:
        structlog.get_logger("operator_runner.x").exception("broke")
    first, *rest = stream.getvalue().splitlines()
    assert first.startswith("broke error=", first.index("broke"))
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1].startswith("ValueError: ")


@pytest.mark.parametrize(
    ("encoding", "kind"),
    [("iso8601", str), ("rfc3339", str), ("rfc3339nano", str), ("epoch", float), ("nano", int)],
)
def test_the_time_is_encoded_as_asked(encoding: str, kind: type) -> None:
    """Zap's time encodings keep their types."""
    stream = json_logs(time_encoding=encoding)
    structlog.get_logger("operator_runner.x").info("hello")
    assert type(lines(stream)[0]["ts"]) is kind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("debug", logging.DEBUG),
        ("info", logging.INFO),
        ("Error", logging.ERROR),
        ("0", logging.INFO),
        ("5", logging.DEBUG),
    ],
)
def test_zap_levels_map_to_python_levels(text: str, expected: int) -> None:
    """Names and numbers of zap become levels of the standard library."""
    assert logs.parse_level(text, "--zap-log-level") == expected


def test_a_wrong_level_names_flag_and_hint() -> None:
    """The message can be acted on."""
    with pytest.raises(ConfigError, match=r"--zap-log-level=loud: .* debug, info, warn, error"):
        logs.configure("json", "loud")


def test_a_wrong_time_encoding_names_flag_and_hint() -> None:
    """The message can be acted on."""
    with pytest.raises(ConfigError, match=r"--zap-time-encoding=roman: .* iso8601"):
        logs.configure("console", "info", time_encoding="roman")
