"""Puts the commit into the wheel, for `ansible_operator_build_info`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file that `operator_runner.core.installation` reads."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Take the commit of the variable or the checkout; an editable install asks later."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from operator_runner.core.installation import FILE, UNKNOWN, commit  # noqa: PLC0415

        if (found := commit()) == UNKNOWN:
            return
        with tempfile.NamedTemporaryFile("w", prefix="commit-", delete=False) as out:
            out.write(found + "\n")
        self._file = Path(out.name)
        build_data["force_include"][out.name] = f"operator_runner/{FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary file."""
        del version, build_data, artifact_path
        if hasattr(self, "_file"):
            self._file.unlink()
