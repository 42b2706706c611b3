"""Sources of the commit of the build."""

from __future__ import annotations

import subprocess
from pathlib import Path

from operator_runner.core.installation import FILE, VARIABLE, commit


def test_the_variable_beats_the_wheel_and_the_wheel_the_checkout(tmp_path: Path) -> None:
    """The build of an image sets it; a wheel contains it; a checkout reads it from git."""
    package = tmp_path / "package"
    package.mkdir()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    assert commit({}, package) == "unknown"
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert commit({}, package) == "unknown"  # nothing is committed yet
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=a"], check=True)
    checked_out = commit({}, package)
    assert len(checked_out) == 40
    (package / FILE).write_text("of-the-wheel\n")
    assert commit({}, package) == "of-the-wheel"
    assert commit({VARIABLE: "of-the-image"}, package) == "of-the-image"
