"""Edits of YAML that people wrote: the lines that need no change stay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operator_runner.tools.scaffold.yaml_edit import edit, load_tagged
from operator_runner.tools.yaml_io import dump_in_order

KEYS = st.sampled_from("abc")
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from((None, 1, "x", "a\nb\n", "", [], {})),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def more(value: Any, added: Any) -> Any:
    """Return a value with what another one adds to its maps and lists."""
    if isinstance(value, dict) and isinstance(added, dict):
        return value | {key: more(value.get(key), each) for key, each in added.items()}
    if isinstance(value, list) and isinstance(added, list):
        return [*value, *added]
    return added if value is None else value


@pytest.mark.parametrize(
    ("text", "added", "expected"),
    [
        ("# c\na: 1 # d\n\n# e\n", {"b": 2}, "# c\na: 1 # d\nb: 2\n\n# e\n"),
        ("a:\n    b: 1\n# c\nd: 1", {"a": {"e": 2}}, "a:\n    b: 1\n    e: 2\n# c\nd: 1\n"),
        ("a: {}  # c\nd: 1\n", {"a": {"e": 2}}, "a:  # c\n  e: 2\nd: 1\n"),
        ("a:\nd: 1\n", {"a": {"e": 2}}, "a:\n  e: 2\nd: 1\n"),
        ("a: {b: 1}  # c\n", {"a": {"e": 2}}, "a: {b: 1, e: 2}  # c\n"),
        ("a:\n- 1\n# c\nd: 1\n", {"a": [2]}, "a:\n- 1\n- 2\n# c\nd: 1\n"),
        ("a: |\n  x\n\nd: 1\n", {"e": 2}, "a: |\n  x\n\nd: 1\ne: 2\n"),
        ("a: !unsafe '{{ x }}'\n", {"e": 2}, "a: !unsafe '{{ x }}'\ne: 2\n"),
    ],
)
def test_comments_and_order_stay(text: str, added: Any, expected: str) -> None:
    """New entries follow the last one of their map, before comments on what follows."""
    assert edit(text, more(load_tagged(text, ""), added), dump_in_order) == expected


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: 1\n", {"a": 2}),
        ("a: text\n", {"a": {"b": 1}}),
        ("a: &x\n  b: 1\nc: *x\n", {"a": {"b": 1, "d": 2}, "c": {"b": 1}}),
        ("a: {b: [1, &x 2]}\nc: *x\n", {"a": {"b": [1, 2, 3]}, "c": 2}),
        ("", {"a": 1}),
    ],
)
def test_what_needs_a_person_is_left_alone(text: str, wanted: Any) -> None:
    """Other values are never replaced, and an anchor is edited only where all uses change."""
    assert edit(text, wanted, dump_in_order) is None


@settings(max_examples=25)
@given(st.dictionaries(KEYS, VALUES, min_size=1), st.dictionaries(KEYS, VALUES))
def test_any_addition_gives_what_is_wanted(value: Any, added: Any) -> None:
    """Maps and lists of any depth are filled, and the comment above each line stays."""
    text = dump_in_order(value)
    if "|" not in text:  # a literal block has no comments
        text = "".join(f"# {at}\n{line}\n" for at, line in enumerate(text.splitlines()))
    wanted = more(value, added)
    edited = edit(text, wanted, dump_in_order)
    assert edited is not None
    assert load_tagged(edited, "") == wanted
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in edited.splitlines() if line.startswith("#")
    ]
