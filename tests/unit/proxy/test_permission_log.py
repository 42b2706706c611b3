"""The file of recorded permissions: additions, merges, errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.errors import ConfigError
from operator_runner.proxy.permission_log import PermissionLog, add_permission, encode, read
from operator_runner.proxy.request_info import ANY, OWN, Permission

GET = Permission("Web.shop", "apps", "deployments", OWN, "get")
_WORDS = st.sampled_from(["", "a", "b", "x.io"])
_PERMISSIONS = st.builds(
    Permission,
    _WORDS,
    _WORDS,
    st.sampled_from(["pods", "pods/exec"]),
    _WORDS,
    st.just("get"),
    _WORDS,
)


def grown(*permissions: Permission) -> set[Permission]:
    known: set[Permission] = set()
    for permission in permissions:
        known = add_permission(known, permission)
    return known


def test_a_restart_continues_the_log(tmp_path: Path) -> None:
    """Existing entries are kept; repeated ones are not written again."""
    file = tmp_path / "requests.yaml"
    PermissionLog(file).add([GET])
    later = PermissionLog(file)
    later.add([GET, replace(GET, verb="create")])
    assert read(file) == [replace(GET, verb="create"), GET]
    assert file.read_text().splitlines()[1:] == [
        "- {by: Web.shop, group: apps, resource: deployments, namespace: own, verbs: [create, get]}"
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["requests.yaml"]


@given(st.sets(_PERMISSIONS, max_size=12))
def test_the_log_survives_a_round_trip(known: set[Permission]) -> None:
    """The text holds all of it, and nothing twice."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "requests.yaml"
        file.write_text(encode(known))
        found = read(file)
    assert set(found) == known
    assert len(found) == len(known)


def test_names_that_vary_become_any() -> None:
    """Three names are recorded; with a fourth one the entry is for any name and replaces them."""
    three = [replace(GET, name=name) for name in "abc"]
    assert grown(*three) == set(three)
    assert grown(*three, replace(GET, name="d")) == {GET}
    assert grown(*three, GET, replace(GET, name="e")) == {GET}


def test_namespaces_that_vary_become_any() -> None:
    """So do namespaces after ten; the resource's own and all namespaces are not counted."""
    ten = [replace(GET, namespace=f"n{number}") for number in range(10)]
    others = {GET, replace(GET, namespace="")}
    assert grown(*ten, *others) == {*ten, *others}
    most = grown(*ten, *others, replace(GET, namespace="n10"))
    assert most == {replace(GET, namespace=ANY), replace(GET, namespace="")}


def test_the_permission_log_is_bounded(tmp_path: Path) -> None:
    """After a thousand entries nothing is added, and the file stays as it is."""
    file = tmp_path / "requests.yaml"
    recording = PermissionLog(file)
    recording.add(replace(GET, resource=f"r{number}") for number in range(1000))
    recording.add([GET])
    assert len(read(file)) == 1000
    assert GET not in read(file)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1", "expected a list"),
        ("[", "cannot read"),
        ("[1]", "[0]: expected a mapping"),
        ("- {resource: pods, verb: get}", "[0]: unknown key verb"),
        ("- {resource: pods}", "[0]: verbs are missing"),
        ("- {verbs: [get]}", "[0]: resource or path is missing"),
        ("- {resource: pods, verbs: get}", "[0]: verbs must be a list"),
        ("- {resource: 1, verbs: [get]}", "[0]: resource must be a string"),
    ],
)
def test_an_invalid_file_is_reported(tmp_path: Path, text: str, problem: str) -> None:
    """The error names file and entry; the operator does not start and overwrite it."""
    file = tmp_path / "requests.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        PermissionLog(file)
    assert str(file) in str(caught.value)
    assert problem in str(caught.value)
    assert file.read_text() == text


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """It is an error at the start, with the flag."""
    with pytest.raises(ConfigError, match="--record-requests"):
        PermissionLog(tmp_path / "none" / "requests.yaml")
