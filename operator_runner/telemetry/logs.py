"""The one pipeline for all log lines: ours through structlog, those of the libraries too.

A line is a constant message with key-values. The dispatcher binds object, run and cause with
`structlog.contextvars`; all lines that are logged meanwhile, by any module, have these keys. At a
terminal a line is time, level, object, message, task, the rest.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import textwrap
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, TypeAlias

import structlog
from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter, plain_traceback
from structlog.typing import EventDict, Processor, WrappedLogger

from operator_runner.core.errors import ConfigError, OperatorRunnerError
from operator_runner.core.texts import printable, redact
from operator_runner.telemetry import output_thread

_OWN_KEYS = frozenset(
    {
        *("event", "level", "logger", "run_id", "trace_id", "span_id"),
        *("kind", "namespace", "name", "cause"),
    }
)
"""Keys that the record or the beginning of the line already has, and ids of traces."""


class RunLog:
    """A processor of structlog that passes lines with a `run_id` on; it changes nothing."""

    def __init__(self) -> None:
        """Pass nothing on yet."""
        self._sink: Callable[[str, str], None] | None = None

    def open(self, sink: Callable[[str, str], None]) -> None:
        """From now on, call `sink` with run and text of each line."""
        self._sink = sink

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Act as a processor, after the one that redacts secrets."""
        run_id = event.get("run_id")
        if self._sink is not None and isinstance(run_id, str):
            self._sink(run_id, _line(event))
        return event


def _line(event: EventDict) -> str:
    rest: dict[str, Any] = {key: value for key, value in event.items() if key not in _OWN_KEYS}
    fields = "".join(f" {key}={value}" for key, value in rest.items() if key[:1] != "_")
    return printable(f"{event.get('level', '')}: {event.get('event', '')}{fields}")


RUN_LOG = RunLog()
"""The instance of the process: there is one log."""


_RESET, _BOLD, _DIM = "\x1b[0m", "\x1b[1m", "\x1b[2m"
_CYAN, _GREEN, _YELLOW, _RED, _MAGENTA = (f"\x1b[3{n}m" for n in (6, 2, 3, 1, 5))
_LEVEL_COLOURS = {
    "debug": (_DIM, "debug"),
    "info": (_GREEN, "info"),
    "warning": (_YELLOW, "warn"),
    "error": (_RED, "error"),
    "critical": (_RED + _BOLD, "fatal"),
}
_OBJECT_KEYS = ("kind", "namespace", "name")


def console_renderer(colors: bool) -> Processor:
    """Return the last step of the pipeline: a record to a line, longer texts indented below it."""
    render = ConsoleRenderer(columns=_columns(colors), exception_formatter=plain_traceback)

    def to_text(logger: WrappedLogger, method: str, event: EventDict) -> str:
        shown = _for_display(event)
        below = [_block(key, shown.pop(key)) for key in _longer_texts(shown)]
        return "\n".join([render(logger, method, shown), *below])

    return to_text


def _for_display(event: EventDict) -> EventDict:
    """Join the object's keys into one, shorten the run id, drop keys that are only for machines."""
    where = "/".join(str(event[key]) for key in ("namespace", "name") if event.get(key))
    shown: EventDict = {"ts": datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]}
    shown.update({key: value for key, value in event.items() if key not in _OBJECT_KEYS})
    shown = {key: _text(value) for key, value in shown.items() if value not in (None, "")}
    if "name" in event:
        shown["object"] = printable(f"{event.get('kind', '')} {where}".strip())
    shown.pop("span_id", None)
    if "run_id" in event:
        shown["run_id"] = str(event["run_id"])[:8]
    if str(shown.get("logger", "")).startswith("operator_runner"):
        del shown["logger"]
    return shown


def _text(value: object) -> object:
    """Return texts as a terminal may show them; exc_info and flags stay what they are."""
    if isinstance(value, str | list | dict):
        return printable(str(value))
    return value


def _longer_texts(shown: EventDict) -> list[str]:
    """Return the keys whose values have several lines; tracebacks are shown below already."""
    ours = (key for key in shown if key not in {"event", "exception"})
    return [key for key in ours if "\n" in str(shown[key])]


def _block(key: str, value: object) -> str:
    return textwrap.indent(f"{key}:\n{textwrap.indent(str(value).rstrip(), '  ')}", "    ")


def _columns(colors: bool) -> list[Column]:
    reset = _RESET if colors else ""

    def bare(
        style: str, width: int = 0, prefix: str = "", postfix: str = ""
    ) -> KeyValueColumnFormatter:
        style = style if colors else ""
        return KeyValueColumnFormatter(None, style, reset, str, width, prefix, postfix)

    def level(key: str, value: object) -> str:
        style, short = _LEVEL_COLOURS[str(value)]
        return bare(style, 5)(key, short)

    rest = KeyValueColumnFormatter(_CYAN if colors else "", "", reset, _quoted)
    return [
        Column("ts", bare(_DIM)),
        Column("level", level),
        Column("object", bare(_CYAN, postfix=":")),
        Column("event", bare(_BOLD)),
        Column("task", bare(_MAGENTA, prefix="'", postfix="'")),
        Column("", rest),
    ]


def _quoted(value: object) -> str:
    """Quote only what would be ambiguous: the line stays readable, and still can be parsed."""
    text = str(value)
    return repr(text) if not text or any(c.isspace() or c in '"=' for c in text) else text


Encoder: TypeAlias = Literal["console", "json"]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "panic": logging.CRITICAL,
}
# Libraries that log too much at INFO; --zap-log-level=debug enables their records.
_CHATTY = ("kopf", "aiohttp", "asyncio", "ansible_runner", "urllib3")
# Tracebacks of errors that end kopf, which `controller.sources.kind_discovery` logs, too.
LOGGED_TWICE = ("kopf._core.reactor.orchestration", "kopf._core.reactor.running")
# Not part of kopf's API either: a part of a message, and the attribute of a record with its object.
KOPF_RETRY_TEXT = "failed; will retry"
KOPF_OBJECT_ATTRIBUTE = "k8s_ref"
# At DEBUG the client writes whole response bodies, Secrets among them: never.
_NEVER_DEBUG = ("kubernetes", "kubernetes_asyncio", "urllib3.connectionpool")
_ORDER = ("ts", "level", "logger", "msg", "kind", "namespace", "name", "run_id", "cause")

_structured = structlog.tracebacks.ExceptionDictTransformer(show_locals=False, use_rich=False)


def configure(
    encoder: Encoder | None,
    level: str,
    *,
    stacktrace_level: str = "error",
    time_encoding: str = "iso8601",
    stream: TextIO | None = None,
) -> None:
    """Send all logging of the process to `stream` (stderr); may be called again.

    `encoder` None: console on a terminal, else JSON. `level` and `stacktrace_level` as in
    --zap-log-level (`parse_level`); tracebacks are written for errors of at least
    `stacktrace_level`. `time_encoding` as in --zap-time-encoding. Raises ConfigError.
    """
    stream = stream or sys.stderr
    terminal = stream.isatty()
    json_lines = encoder == "json" or (encoder is None and not terminal)
    threshold = parse_level(level, "--zap-log-level")
    trace_from = parse_level(stacktrace_level, "--zap-stacktrace-level")
    if time_encoding not in _TIMES:
        known = ", ".join(_TIMES)
        raise ConfigError(f"--zap-time-encoding={time_encoding}: unknown; write one of {known}")
    tail = _json_tail(time_encoding) if json_lines else [console_renderer(colors=terminal)]
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            _name_object_of_kopf,
            _retries_as_warnings,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _Exceptions(trace_from, json_lines),
            _redact_all,
            RUN_LOG,
            *tail,
        ]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # loggers of modules outlive a second `configure`
    )
    _take_over_stdlib(formatter, stream, threshold)


def parse_level(text: str, flag: str) -> int:
    """Read a zap level into one of `logging`; zap's numbers above 0 mean debug, ever finer.

    Raises ConfigError that names `flag`.
    """
    if text.isdigit():
        return logging.DEBUG if int(text) > 0 else logging.INFO
    try:
        return _LEVELS[text.lower()]
    except KeyError:
        known = ", ".join(_LEVELS)
        message = f"{flag}={text}: unknown level; write one of {known}, or a whole number"
        raise ConfigError(message) from None


def _take_over_stdlib(formatter: logging.Formatter, stream: TextIO, threshold: int) -> None:
    handler = _Handler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    logging.captureWarnings(True)
    for name in _CHATTY:
        quiet = threshold if threshold <= logging.DEBUG else max(threshold, logging.WARNING)
        logging.getLogger(name).setLevel(quiet)
    for name in LOGGED_TWICE:
        logging.getLogger(name).setLevel(
            threshold if threshold <= logging.DEBUG else logging.CRITICAL
        )
    for name in _NEVER_DEBUG:
        logging.getLogger(name).setLevel(max(threshold, logging.INFO))


class _Handler(logging.Handler):
    """Writes records to a stream, by the thread of `output_thread` where there is one."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        """Format here, in the task with the bound keys, and pass the text to the writer."""
        try:
            output_thread.write(self._stream, self.format(record) + "\n")
        except Exception:  # noqa: BLE001 (a log line that fails must not fail its subject)
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (of logging)
        """Report a record that cannot be formatted."""
        place = f"{record.pathname}:{record.lineno}"
        with contextlib.suppress(OSError, ValueError):
            output_thread.write(
                self._stream, f"Log record of {place} failed:\n{traceback.format_exc()}"
            )


def _json_tail(time_encoding: str) -> list[Processor]:
    """Return the last steps to a JSON line: time, names of keys, their order, text."""
    encode = _TIMES[time_encoding]

    def arrange(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["ts"] = encode(datetime.now(UTC))
        event["msg"] = event.pop("event")
        first = {key: event[key] for key in _ORDER if key in event}
        return {**first, **event}

    # Without blanks, as zap writes: people search their logs for whole pieces of lines.
    dense = (",", ":")
    return [arrange, structlog.processors.JSONRenderer(json.dumps, default=str, separators=dense)]


_TIMES: dict[str, Callable[[datetime], str | float]] = {
    "iso8601": lambda now: now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03}Z",
    "rfc3339": lambda now: now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "rfc3339nano": lambda now: now.strftime("%Y-%m-%dT%H:%M:%S.%f000Z"),
    "epoch": lambda now: now.timestamp(),
    "millis": lambda now: now.timestamp() * 1e3,
    "nano": lambda now: int(now.timestamp() * 1e6) * 1000,
}


def _name_object_of_kopf(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Give kopf's lines about an object the same keys as ours."""
    ref = getattr(event.get("_record"), KOPF_OBJECT_ATTRIBUTE, None)
    if isinstance(ref, dict):
        for key in ("kind", "namespace", "name"):
            if ref.get(key):
                event.setdefault(key, ref[key])
    return event


def _retries_as_warnings(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Make kopf warn of a request that it will repeat; it fails if the last attempt fails."""
    if event["level"] == "error" and KOPF_RETRY_TEXT in str(event["event"]):
        event["level"] = "warning"
    return event


def _redact_all(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    redacted: EventDict = redact(event)
    return redacted


class _Exceptions:
    """Replace `exc_info` by `error` (type and message) and, from a level on, the traceback."""

    def __init__(self, trace_from: int, structured: bool) -> None:
        self._trace_from = trace_from
        self._structured = structured

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Act as a processor of structlog."""
        info = event.pop("exc_info", None)
        if info is True:
            info = sys.exc_info()
        error = info[1] if isinstance(info, tuple) else info
        if not isinstance(error, BaseException):
            return event
        event.setdefault("error", _describe(error))
        if logging.getLevelName(event["level"].upper()) >= self._trace_from:
            parts = (type(error), error, error.__traceback__)
            event["exception"] = (
                _structured(parts)
                if self._structured
                else "".join(traceback.format_exception(error)).rstrip()
            )
        return event


def _describe(error: BaseException) -> str:
    # Our own errors are sentences; other errors need their type to be understood.
    if isinstance(error, OperatorRunnerError):
        return str(error)
    return f"{type(error).__name__}: {error}"
