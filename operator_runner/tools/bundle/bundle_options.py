"""Validate the options of a bundle. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from operator_runner.core.errors import ConfigError

# Semantic Versioning 2.0.0 without build metadata: names of objects cannot contain a plus.
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9a-z][0-9a-z-]*(\.[0-9a-z][0-9a-z-]*)*)?"
)
_CHANNEL = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """Version, channels and image of a bundle.

    Without `image` the manifests keep theirs; `use_image_digests` rejects images without a digest.
    """

    version: str
    channels: tuple[str, ...] = ("alpha",)
    default_channel: str = ""
    image: str = ""
    use_image_digests: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError for values that OLM rejects."""
        problems = []
        if not _VERSION.fullmatch(self.version):
            problems.append(
                f"--version: invalid semantic version {self.version!r}: write one such as 0.0.1"
            )
        problems += [
            f"--channels: invalid channel {channel!r}: use lower-case letters, digits, '-' and '.'"
            for channel in self.channels
            if not _CHANNEL.fullmatch(channel)
        ]
        if not self.channels:
            problems.append("--channels: name at least one, such as alpha")
        if self.default_channel and self.default_channel not in self.channels:
            problems.append(
                f"--default-channel: invalid channel {self.default_channel!r}: expected one of"
                f" {', '.join(self.channels)}"
            )
        if problems:
            raise ConfigError(*problems)


def precedence(version: str) -> tuple[object, ...]:
    """Return a sort key for semantic versions, by the precedence of their specification."""
    core, _, pre = version.partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    # A release is later than its pre-releases; numeric identifiers are earlier than others.
    parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre.split(".") if pre)
    return (numbers, not pre, parts)
