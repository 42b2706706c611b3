"""Check runs and queues that were received from a Pod that answers. Pure.

Others could have written them. What is returned has the known fields with values of their types;
texts and lists are limited. Unknown fields are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from operator_runner.core.model import Json
from operator_runner.core.texts import truncated

_Check: TypeAlias = Callable[[Any], Any]
"""Returns a value that is limited. Raises ValueError for one of another type."""

_MAX_TEXT_BYTES = 4096
"""The texts of a record are shorter."""
_MAX_ENTRIES = 1000
"""Entries of a list; those of a record are fewer."""
_MAX_ID_CHARACTERS = 64
_MAX_NUMBER = 1e12


def _require(holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"expected {expected}")


def _text(value: Any) -> str:
    _require(isinstance(value, str), "a text")
    return truncated(value, _MAX_TEXT_BYTES)


def _name(value: Any) -> str:
    _require(bool(value), "a name")
    return _text(value)


def _id(value: Any) -> str:
    text = _text(value)
    is_plain = text.isascii() and text.isalnum() and len(text) <= _MAX_ID_CHARACTERS
    _require(is_plain, "an ID of letters and digits")
    return text


def _time(value: Any) -> str:
    text = _text(value)
    time = datetime.fromisoformat(text)
    _require(time.tzinfo is not None, "a time with its zone")
    try:
        time.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from error
    return text


def _number(value: Any) -> float:
    _require(isinstance(value, int | float) and not isinstance(value, bool), "a number")
    # False for NaN, too.
    _require(0 <= value <= _MAX_NUMBER, f"a number from 0 to {_MAX_NUMBER:g}")
    return value  # type: ignore[no-any-return] # an int stays one


def _integer(value: Any) -> int:
    _require(isinstance(value, int), "an integer")
    return int(_number(value))


def _flag(value: Any) -> bool:
    _require(isinstance(value, bool), "true or false")
    return bool(value)


def _list(check: _Check) -> _Check:
    def checked(value: Any) -> list[Any]:
        _require(isinstance(value, list), "a list")
        return [check(each) for each in value[:_MAX_ENTRIES]]

    return checked


def _object(required: Mapping[str, _Check], **optional: _Check) -> _Check:
    checks = {**required, **optional}

    def checked(value: Any) -> Json:
        is_complete = isinstance(value, dict) and required.keys() <= value.keys()
        _require(is_complete, f"an object with {', '.join(required) or 'its fields'}")
        return {name: check(value[name]) for name, check in checks.items() if name in value}

    return checked


_OBJECT = _object({"apiVersion": _name, "kind": _name, "name": _name}, namespace=_text, uid=_text)
_CAUSE = _object({"trigger": _text}, detail=_text)
_TASK = _object(
    {},
    name=_text,
    action=_text,
    path=_text,
    host=_text,
    started=_time,
    seconds=_number,
    result=_text,
    ended=_time,
    noLog=_flag,
)
_WRITE = _object({"object": _OBJECT, "verb": _text})
_CHANGE = _object(
    {"object": _OBJECT, "path": _text},
    at=_time,
    task=_text,
    hidden=_flag,
    before=_text,
    after=_text,
)
_REQUEST = _object(
    {"method": _text, "path": _text}, status=_integer, at=_time, seconds=_number, refused=_text
)
_DROPPED = _object(
    {}, tasks=_integer, writes=_integer, changes=_integer, requests=_integer, log=_integer
)
check_run = _object(
    {"id": _id, "resource": _OBJECT, "outcome": _name, "started": _time},
    finished=_time,
    seconds=_number,
    traceID=_id,
    message=_text,
    failedTask=_object({}, name=_text, path=_text),
    task=_object({"started": _time}, name=_text, action=_text, path=_text),
    changed=_integer,
    causes=_list(_CAUSE),
    tasks=_list(_TASK),
    writes=_list(_WRITE),
    changes=_list(_CHANGE),
    requests=_list(_REQUEST),
    log=_list(_text),
    dropped=_DROPPED,
)
"""Returns a record of a run or its summary. Raises ValueError."""
check_queue_entry = _object(
    {"resource": _OBJECT, "state": _text},
    position=_integer,
    since=_time,
    due=_time,
    failures=_integer,
    causes=_list(_CAUSE),
)
"""Returns an entry of a queue. Raises ValueError."""
check_schedule = _object({"resource": _OBJECT}, next=_time, last=_time, error=_text)
"""Returns an entry of the schedules. Raises ValueError."""
check_drift = _object({"resource": _OBJECT, "status": _text, "message": _text})
"""Returns an entry of the resources with drift. Raises ValueError."""
check_dependents = _object({"resource": _OBJECT, "objects": _list(_OBJECT)})
"""Returns a resource with its objects. Raises ValueError."""
