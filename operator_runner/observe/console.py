"""Log lines for a person at a terminal: time, level, object, message, task, the rest."""

from __future__ import annotations

from datetime import datetime

from structlog.dev import (
    Column,
    ConsoleRenderer,
    KeyValueColumnFormatter,
    plain_traceback,
)
from structlog.typing import EventDict, Processor, WrappedLogger

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
    """Return the last step of the pipeline: a record to one line of text (more for tracebacks)."""
    render = ConsoleRenderer(columns=_columns(colors), exception_formatter=plain_traceback)

    def to_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
        return render(logger, method, _for_people(event))

    return to_line


def _for_people(event: EventDict) -> EventDict:
    """Join the object's keys into one, shorten the run id, drop what people do not look for."""
    where = "/".join(str(event[key]) for key in ("namespace", "name") if event.get(key))
    shown: EventDict = {"ts": datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]}
    shown.update({key: value for key, value in event.items() if key not in _OBJECT_KEYS})
    if "name" in event:
        shown["object"] = f"{event.get('kind', '')} {where}".strip()
    if "run_id" in event:
        shown["run_id"] = str(event["run_id"])[:8]
    if str(shown.get("logger", "")).startswith("operator_runner"):
        del shown["logger"]
    return shown


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
