"""Files are written all or none, and never replace files of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.tools.scaffold import commands


def test_only_new_and_changed_files_are_written(tmp_path: Path) -> None:
    """Folders are made, a changed file keeps its mode, an unchanged one is not named."""
    (tmp_path / "run.sh").write_text("old")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "same").write_text("same")
    present = commands.read(tmp_path, ("run.sh", "same", "missing"))
    assert present == {"run.sh": "old", "same": "same"}
    files = {"run.sh": "new", "same": "same", "a/b/c.yaml": "c"}
    assert sorted(commands.write(tmp_path, files, present)) == ["a/b/c.yaml", "run.sh"]
    assert (tmp_path / "run.sh").read_text() == "new"
    assert (tmp_path / "run.sh").stat().st_mode & 0o777 == 0o755
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == [
        "c.yaml",
        "run.sh",
        "same",
    ]


def test_existing_files_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    """All of them are named, a dangling link too, and nothing at all is written."""
    (tmp_path / "b").write_text("mine")
    (tmp_path / "c").symlink_to("nowhere")
    with pytest.raises(ConfigError) as caught:
        commands.write(tmp_path, {"a": "1", "b": "2", "c": "3"}, {})
    assert [line.split(":")[0] for line in caught.value.problems[:-1]] == ["b", "c"]
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "b").read_text() == "mine"


def test_unwritable_paths_are_named(tmp_path: Path) -> None:
    """A file where a folder should be is an error with its path."""
    (tmp_path / "config").write_text("")
    with pytest.raises(ConfigError, match="config"):
        commands.write(tmp_path, {"config/a.yaml": ""}, {})
