"""Add a hint to errors of the API about strings and numbers from templates. Pure.

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
    "A template returned a string where the API expects a number or a boolean: write "
    "`{{ x | int }}` or `{{ x | bool }}` with `nativeTypes: true` in watches.yaml (or "
    "`jinja2_native`, ANSIBLE_JINJA2_NATIVE), so that templates return the types of their "
    "expressions."
)
# A template that is only a variable keeps the type of a number or boolean, whatever the setting.
FOR_TEXTS = (
    "A template returned a number or a boolean where the API expects a string: write "
    "`{{ x | string }}`, for a boolean `{{ x | string | lower }}`."
)


def with_type_hint(message: str) -> str:
    """Return the message of a failure, with a hint if types of template results caused it."""
    hints = [
        hint
        for pattern, hint in ((_WANTS_NUMBER, FOR_NUMBERS), (_WANTS_TEXT, FOR_TEXTS))
        if pattern.search(message) and hint not in message
    ]
    return " ".join([message.rstrip(), *hints]) if hints else message
