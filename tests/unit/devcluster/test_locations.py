"""Where clusters keep their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.image_packing import available
from operator_runner.devcluster.locations import (
    cache_folder,
    clusters_folder,
    home_of,
    private_folder,
    write_file,
)


def test_the_xdg_variables_are_followed(tmp_path: Path) -> None:
    """Cache and state are in the user's XDG directories."""
    environment = {"XDG_CACHE_HOME": str(tmp_path / "c"), "XDG_STATE_HOME": str(tmp_path / "s")}
    assert cache_folder(environment) == tmp_path / "c" / "operator-runner"
    assert clusters_folder(environment) == tmp_path / "s" / "operator-runner" / "clusters"


@pytest.mark.parametrize("value", [None, "", "relative/path"])
def test_without_them_the_home_directory_serves(value: str | None) -> None:
    """Relative paths are ignored, as the XDG specification has it."""
    environment = {} if value is None else {"XDG_CACHE_HOME": value}
    assert cache_folder(environment) == Path.home() / ".cache" / "operator-runner"


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a_b", "-a", "a-", "a" * 41, "a\n"])
def test_a_name_that_is_not_a_file_name_is_rejected(name: str) -> None:
    """A cluster's name cannot lead out of the folder of clusters."""
    with pytest.raises(ClusterError, match="invalid cluster name"):
        home_of(name, {})


def test_the_token_follows_from_the_path(tmp_path: Path) -> None:
    """Names on the machine are the same for every command, and differ between clusters."""
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    one = home_of("one", environment)
    assert one.token == home_of("one", environment).token
    assert one.token != home_of("two", environment).token
    assert len(one.token) == 8


def test_a_symbolic_link_leads_to_the_same_cluster(tmp_path: Path) -> None:
    """Two ways to one folder are one cluster."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real, link = (
        home_of("one", {"XDG_STATE_HOME": str(tmp_path / name)}) for name in ("real", "link")
    )
    assert real.path == link.path


def test_folders_and_files_are_private(tmp_path: Path) -> None:
    """Only the user can read a cluster's files, for any umask."""
    folder = private_folder(tmp_path / "a" / "b")
    assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}
    assert write_file(folder / "key", "x").stat().st_mode & 0o777 == 0o600


def test_only_packages_with_a_candidate_are_available() -> None:
    """A virtual or unknown package cannot be downloaded."""
    policy = """one:
  Installed: (none)
  Candidate: 1:2.3-4
  Version table:
two:
  Installed: (none)
  Candidate: (none)
"""
    assert available(policy) == {"one"}
