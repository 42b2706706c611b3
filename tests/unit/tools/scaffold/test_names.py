"""Names of projects and kinds: valid ones, and errors with their hints."""

from __future__ import annotations

import pytest

from operator_runner.core import object_names
from operator_runner.core.errors import ConfigError
from operator_runner.tools.scaffold import project_file


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("memcached", "memcacheds"),
        ("redis", "redises"),
        ("proxy", "proxies"),
        ("gateway", "gateways"),
        ("mesh", "meshes"),
        ("batch", "batches"),
        ("box", "boxes"),
        ("nginxoperator", "nginxoperators"),
    ],
)
def test_plurals_follow_english_spelling(kind: str, plural: str) -> None:
    """A kind's plural follows the spelling rules of English."""
    assert object_names.pluralize(kind) == plural


def test_a_kind_has_its_plural_and_its_group() -> None:
    """The group ends in the domain; a kind without a group has the domain alone."""
    api = project_file.api("cache", "v1alpha1", "Memcached")
    assert (api.lower, api.plural) == ("memcached", "memcacheds")
    assert api.full_group("example.com") == "cache.example.com"
    assert project_file.api("", "v1", "Index", "indices").full_group("example.com") == "example.com"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("Cache", "v1", "Web", ""), "--group 'Cache'"),
        (("cache", "1.0", "Web", ""), "--version '1.0'"),
        (("cache", "v0", "Web", ""), "--version 'v0'"),
        (("cache", "", "Web", ""), "--version ''"),
        (("cache", "v1", "web", ""), "--kind=Web"),
        (("cache", "v1", "my-web app", ""), "--kind=MyWebApp"),
        (("cache", "v1", "", ""), "--kind ''"),
        (("cache", "v1", "True", ""), "--kind 'True'"),
        (("cache", "v1", "Web", "Webs"), "--plural 'Webs'"),
    ],
)
def test_a_bad_kind_is_refused(flags: tuple[str, str, str, str], problem: str) -> None:
    """The error names the flag, and a kind that would do."""
    with pytest.raises(ConfigError) as caught:
        project_file.api(*flags)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("My_Operator", "--project-name=my-operator"),
        ("9lives", "--project-name=lives"),
        ("true", "--project-name=my-operator"),
        ("x" * 30, "--project-name=" + "x" * 28),
        ("", "--project-name=my-operator"),
    ],
)
def test_a_bad_project_name_is_refused(name: str, hint: str) -> None:
    """The error offers a name that is taken."""
    with pytest.raises(ConfigError) as caught:
        project_file.project(name, "example.com")
    assert str(caught.value).endswith(hint)
    assert project_file.project(hint.removeprefix("--project-name="), "example.com")


def test_all_errors_are_reported_at_once() -> None:
    """Each flag has a line of its own."""
    with pytest.raises(ConfigError) as caught:
        project_file.project("A", "Example")
    assert [text.split()[0] for text in caught.value.problems] == ["--project-name", "--domain"]
    with pytest.raises(ConfigError) as caught:
        project_file.api("G", "1", "k")
    assert len(caught.value.problems) == 3
