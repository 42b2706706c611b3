"""Log lines for reading at a terminal: time, level, object, message, task, the rest."""

from __future__ import annotations

import textwrap
from datetime import datetime

from structlog.dev import (
    Column,
    ConsoleRenderer,
    KeyValueColumnFormatter,
    plain_traceback,
)
from structlog.typing import EventDict, Processor, WrappedLogger

from operator_runner.telemetry.printable import printable

_RESET, _BOLD, _DIM = "\x1b[0m", "\x1b[1m", "\x1b[2m"
_CYAN, _GREEN, _YELLOW, _RED, _MAGENTA = (f"\x1b[3{n}m" for n in (6, 2, 3, 1, 5))
_LEVELS = {
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
        style, short = _LEVELS[str(value)]
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
