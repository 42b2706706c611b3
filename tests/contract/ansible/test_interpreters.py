"""Interpreters of an inventory that are the operator's own under another name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
from operator_runner.ansible.forkserver import module_files
module_files.learn_interpreters([Path(path) for path in sys.argv[1:]])
print(*map(module_files._is_this_interpreter, sys.argv[1:]))
"""


def test_an_interpreter_with_the_same_libraries_is_the_same(tmp_path: Path) -> None:
    """It runs modules as fast; one without them, or another program, is not taken for it."""
    pythons = []
    for name in ("with", "without"):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / name], check=True)
        pythons.append(tmp_path / name / "bin" / "python")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (place,) = (tmp_path / "with" / "lib").glob("python*/site-packages")
    (place / "ours.pth").write_text("\n".join(libraries))

    interpreters = [*pythons, tmp_path / "missing", Path("/bin/sh")]
    command = [sys.executable, "-c", SCRIPT, *map(str, interpreters)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["True", "False", "False", "False"]
