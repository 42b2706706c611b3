"""The commit that this program was built from, for the metric of the build.

Standard library only: the build of the wheel (hatch_build.py) uses it, too.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "OPERATOR_RUNNER_COMMIT"
"""Names the commit where sources come without their history, as in an image's build."""
FILE = "_commit"
"""In an installed package; written when its wheel is built."""
UNKNOWN = "unknown"

_PACKAGE = Path(__file__).parents[1]


def commit(environ: Mapping[str, str] = os.environ, package: Path = _PACKAGE) -> str:
    """Return the commit's id: of the variable, the wheel, or the checkout; else `unknown`."""
    if given := environ.get(VARIABLE, "").strip():
        return given
    built = package / FILE
    if built.exists():
        return built.read_text().strip()
    return _checked_out(package.parent) or UNKNOWN


def _checked_out(root: Path) -> str:
    # Elsewhere git would look in the folders above, which are another project's.
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""  # git is not installed
    return completed.stdout.strip() if completed.returncode == 0 else ""
