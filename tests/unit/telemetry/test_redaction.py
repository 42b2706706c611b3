"""Secrets never reach a log line."""

from __future__ import annotations

import pytest

from operator_runner.core.texts import REDACTED, redact


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "Authorization",
        "X-Auth-Token",
        "password",
        "dbPassword",
        "clientSecret",
        "client-key-data",
        "kubeconfig",
        "set_cookie",
        "API_KEY",
        "größe-token",
    ],
)
def test_the_value_of_a_secret_key_is_replaced(key: str) -> None:
    """For any spelling of the key, its value is removed."""
    assert redact({key: "s3cr3t"}) == {key: REDACTED}


@pytest.mark.parametrize("key", ["tokens_used", "secret_name", "keyboard", "passing", "key"])
def test_a_key_that_only_looks_similar_keeps_its_value(key: str) -> None:
    """Redaction does not eat what a reader needs."""
    assert redact({key: "web"}) == {key: "web"}


def test_secrets_are_found_in_nested_values() -> None:
    """Lists and objects inside a value are looked through."""
    event = {"spec": {"users": [{"name": "ann", "password": "p"}]}}
    assert redact(event) == {"spec": {"users": [{"name": "ann", "password": REDACTED}]}}


def test_flags_and_counts_are_not_secrets() -> None:
    """`token=True` is not a secret."""
    assert redact({"token": True, "password": None}) == {"token": True, "password": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abcdef0123456789", f"Authorization: Bearer {REDACTED}"),
        ("BEARER abcdef0123456789", f"BEARER {REDACTED}"),
        (
            "bEaReR abcdef0123456789 of postgres://ann:pw@db",
            f"bEaReR {REDACTED} of postgres://ann:{REDACTED}@db",
        ),
        ("GET http://ann:pw@127.0.0.1/", f"GET http://ann:{REDACTED}@127.0.0.1/"),
        ("the bearer of news", "the bearer of news"),
        ("http://localhost:8888/api", "http://localhost:8888/api"),
    ],
)
def test_secrets_inside_texts_are_replaced(text: str, expected: str) -> None:
    """A header or URL that somebody put into a message loses its secret part only."""
    assert redact(text) == expected


def test_the_given_value_is_left_alone() -> None:
    """Logged values are often live objects of the caller, which must not change."""
    event = {"spec": {"password": "p"}}
    redact(event)
    assert event == {"spec": {"password": "p"}}
