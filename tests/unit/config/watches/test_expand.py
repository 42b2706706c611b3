"""Environment variables in the text, as Go's os.Expand puts them in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.config.watches.document import expand

ENVIRON = {"NAME": "web", "EMPTY": "", "1": "one", "LINES": "a\nb", "a b": "spaced"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("role: $NAME", "role: web"),
        ("role: ${NAME}s", "role: webs"),
        ("$NAME$NAME", "webweb"),
        ("x${EMPTY}y", "xy"),
        ("${a b}", "spaced"),
        ("$UNSET-x", "${UNSET}-x"),
        ("${UNSET}", "${UNSET}"),
        ("${UNSET:-default}", "${UNSET:-default}"),
        ("$1", "one"),
        ("$10", "one0"),
        ("${1}", "one"),
        ("$$", "$$"),
        ("$*", "$*"),
        ("$-", "$-"),
        ("$2.00", "$2.00"),
        ("${2}", "${2}"),
        ('"$ANSIBLE_VAULT;1.1;AES256\\n3537"', '"$ANSIBLE_VAULT;1.1;AES256\\n3537"'),
        ("$ANSIBLE_VAULT", "${ANSIBLE_VAULT}"),
        ("$ANSIBLE_VAULT_ID;", "${ANSIBLE_VAULT_ID};"),
        ("${}x", "x"),
        ("${NAME", "NAME"),
        ("cost: 5$", "cost: 5$"),
        ("$.x $ x $/", "$.x $ x $/"),
        ("$_x", "${_x}"),
        ("$NAMEé", "webé"),
    ],
)
def test_references_expand_as_in_go(text: str, expected: str) -> None:
    """Both forms expand, unset variables keep their braces, invalid references are removed."""
    assert expand(text, ENVIRON).text == expected


def test_lines_are_mapped_to_lines_of_the_file() -> None:
    """Lines of a value count as the line of the reference."""
    expanded = expand("one\n$LINES\nthree\n${NO\nNE}\nsix", ENVIRON)

    numbered = list(enumerate(expanded.text.split("\n")))

    assert [(expanded.source_line(number), line) for number, line in numbered] == [
        (1, "one"),
        (2, "a"),
        (2, "b"),
        (3, "three"),
        (4, "${NO"),
        (5, "NE}"),
        (6, "six"),
    ]


@given(st.text(alphabet="$${}ab1*\n -"), st.dictionaries(st.text("ab1", min_size=1), st.text()))
def test_every_line_of_any_text_has_a_line_in_the_file(text: str, environ: dict[str, str]) -> None:
    """For any values, line numbers are within the file and never decrease."""
    expanded = expand(text, environ)

    assert len(expanded.lines) == expanded.text.count("\n") + 1
    assert list(expanded.lines) == sorted(expanded.lines)
    assert expanded.lines[0] == 1
    assert expanded.lines[-1] <= text.count("\n") + 1
