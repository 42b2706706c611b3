"""Suggestions for undefined names."""

from __future__ import annotations

import pytest

from operator_runner.ansible.templating.hints import key_hint, nearest, variable_hint

KNOWN = ["site_title", "replicas", "apiVersion", "web"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("siteTitle", ": spec fields are in snake case here: site_title"),
        ("SiteTitle", ": did you mean site_title?"),
        ("site_titel", ": did you mean site_title?"),
        ("api_version", ": did you mean apiVersion?"),
        ("replica", ": did you mean replicas?"),
        ("storage", ""),
        ("x" * 200, ""),
    ],
)
def test_a_hint_names_a_similar_variable(name: str, hint: str) -> None:
    """The name in snake case if there is such a variable, else the nearest one."""
    assert variable_hint(name, KNOWN) == hint


def test_a_hint_names_a_similar_key() -> None:
    """Keys have the same rule in other words."""
    assert key_hint("listenPort", ["listen_port"]) == (
        ": nested keys are in snake case too: listen_port"
    )


def test_names_from_resources_are_bounded() -> None:
    """Long names are not suggested."""
    assert nearest("a" * 99, ["a" * 101]) is None


def test_of_names_that_differ_in_underscores_the_more_similar_one() -> None:
    """The order of the names does not matter."""
    assert nearest("to_jsn", {"tojson", "to_json"}) == "to_json"
    assert nearest("tojsn", {"to_json", "tojson"}) == "tojson"
