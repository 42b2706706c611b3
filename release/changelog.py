"""Read CHANGELOG.md. Pure."""

from __future__ import annotations

import re

UNRELEASED = "Unreleased"
_HEADING = re.compile(r"^## +(.+?) *$", re.MULTILINE)
_VERSION = re.compile(r"\[?v?(\d+\.\d+\.\d+[^\s\]]*)\]?")


class ReleaseError(Exception):
    """The files of the project do not describe a release; the message has the file and a hint."""


def sections(text: str) -> dict[str, str]:
    """Return the entries of each section by its version, newest first.

    Headings are `## 0.1.0`, `## v0.1.0` or `## [0.1.0] - 2026-01-31`; the section of coming changes
    is `Unreleased`.
    """
    parts = _HEADING.split(text)[1:]
    return {
        _title(heading): body.strip() for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }


def newest_version(text: str) -> str | None:
    """Return the version of the topmost section of a release, or None."""
    return next(filter(_VERSION.fullmatch, sections(text)), None)


def release_notes(text: str, version: str) -> str:
    """Return the release notes of a version, with a final newline.

    Raises ReleaseError if the changelog has no section for the version, or an empty one.
    """
    entries = sections(text).get(version)
    if not entries:
        raise ReleaseError(
            f"CHANGELOG.md: no entries for {version}: move those of `## {UNRELEASED}` below a"
            f" heading `## {version}`"
        )
    return f"# operator-runner {version}\n\n{entries}\n"


def _title(heading: str) -> str:
    found = _VERSION.match(heading)
    return found[1] if found else heading
