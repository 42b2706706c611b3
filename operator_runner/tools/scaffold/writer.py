"""Write planned files: all or none, and never over a file that is not in the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from operator_runner.core.errors import ConfigError


def read(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return the texts of the files that exist."""
    return {path: _read(root / path) for path in paths if (root / path).exists()}


def write(root: Path, files: Mapping[str, str], replacing: Mapping[str, str]) -> list[str]:
    """Write files below a directory; return the paths that were created or changed.

    `replacing` has the texts that the changed files had when they were read. If files exist
    already, raises ConfigError that names all of them, and writes nothing.
    """
    new = [path for path in files if path not in replacing]
    # A dangling link counts as an existing file.
    existing = [path for path in new if (root / path).exists() or (root / path).is_symlink()]
    if existing:
        raise ConfigError(
            *(f"{path}: already exists" for path in existing),
            "Nothing was written. Move these files away, or choose other names",
        )
    changed = [path for path, text in files.items() if replacing.get(path) != text]
    for path in changed:
        _write(root / path, files[path])
    return changed


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _write(path: Path, text: str) -> None:
    """Write atomically: a full disk must not truncate a file that the user has edited."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".new")
        draft.write_text(text, encoding="utf-8")
        if path.exists():
            draft.chmod(path.stat().st_mode)
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
