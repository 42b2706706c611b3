"""What unquoted YAML scalars mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.config.watches.document import Scalar, resolve_scalar


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("~", None),
        ("NULL", None),
        ("nULL", "nULL"),
        ("yes", True),
        ("y", True),
        ("On", True),
        ("oN", "oN"),
        ("FALSE", False),
        ("off", False),
        ("12", 12),
        ("-7", -7),
        ("+7", 7),
        ("1_000", 1000),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0b11", -3),
        ("08", 8.0),
        ("1.50", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.", 1.0),
        ("1:30", "1:30"),
        ("2024-05-01", "2024-05-01"),
        ("1.2.3", "1.2.3"),
        ("v1", "v1"),
        ("-", "-"),
        (".", "."),
        ("=", "="),
    ],
)
def test_plain_scalars_have_the_types_of_go(text: str, expected: Scalar) -> None:
    """Words, numbers and text are distinguished by the rules of the original reader."""
    value = resolve_scalar(text)

    assert value == expected
    assert type(value) is type(expected)


@given(st.text(alphabet="0123456789+-._eExobXOBfaAFny~:"))
def test_any_scalar_has_a_meaning(text: str) -> None:
    """No text, however odd, is an error."""
    assert isinstance(resolve_scalar(text), str | int | float | None)
