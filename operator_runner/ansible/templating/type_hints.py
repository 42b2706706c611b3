"""Say how templates are to give what the API wants, where it refused a text or a number. Pure.

Sources of the messages: validation of custom resources ("must be of type"), decoding of built-in
kinds (encoding/json), server-side apply (structured-merge-diff).
"""

from __future__ import annotations

import re

_WANTS_NUMBER = re.compile(
    r"must be of type (?:integer|number|boolean): \\*\"string\\*\""
    r"|cannot unmarshal string into Go \S+(?: field \S+)? of type \W*(?:u?int|float|bool)"
    r"|expected (?:numeric \(int or float\)|boolean), got (?:string|&\{(?!map\[|\[))"
)
_WANTS_TEXT = re.compile(
    r"must be of type string: \\*\"(?:integer|number|boolean)\\*\""
    r"|cannot unmarshal (?:number|bool)\S* into Go \S+(?: field \S+)? of type \W*string"
    r"|expected string, got (?:int|float|bool|&\{(?!map\[|\[)|&value\.valueUnstructured)"
)
FOR_NUMBERS = (
    "A template gave text where the API wants a number or a boolean: `nativeTypes: true` in "
    "watches.yaml (or `jinja2_native`, ANSIBLE_JINJA2_NATIVE) has templates give the types of "
    "their expressions, so that `{{ x | int }}` is a number."
)
FOR_TEXTS = (
    "A template gave a number or a boolean where the API wants text: write `{{ x | string }}`, or "
    "set `nativeTypes: false` in watches.yaml (or `jinja2_native`, ANSIBLE_JINJA2_NATIVE), with "
    "which templates give text."
)


def with_type_hint(message: str) -> str:
    """Return the message of a failure, with a sentence on the setting where types are the cause."""
    hints = [
        hint
        for pattern, hint in ((_WANTS_NUMBER, FOR_NUMBERS), (_WANTS_TEXT, FOR_TEXTS))
        if pattern.search(message) and hint not in message
    ]
    return " ".join([message.rstrip(), *hints]) if hints else message
