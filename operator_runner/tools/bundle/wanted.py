"""What a bundle is asked to be. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from operator_runner.core.errors import ConfigError

# Semantic Versioning 2.0.0, without build metadata: a plus may not stand in an object's name.
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9a-z][0-9a-z-]*(\.[0-9a-z][0-9a-z-]*)*)?"
)
_CHANNEL = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Version, channels and image of a bundle.

    Without `image` the manifests keep theirs; `pinned` demands images by digest.
    """

    version: str
    channels: tuple[str, ...] = ("alpha",)
    default_channel: str = ""
    image: str = ""
    pinned: bool = False

    def __post_init__(self) -> None:
        """Refuse what OLM would refuse."""
        problems = []
        if not _VERSION.fullmatch(self.version):
            problems.append(f"--version: {self.version!r} is no semantic version such as 0.0.1")
        problems += [
            f"--channels: {channel!r} is no name of a channel: small letters, digits, dashes, dots"
            for channel in self.channels
            if not _CHANNEL.fullmatch(channel)
        ]
        if not self.channels:
            problems.append("--channels: name at least one, such as alpha")
        if self.default_channel and self.default_channel not in self.channels:
            problems.append(
                f"--default-channel: {self.default_channel} is none of {', '.join(self.channels)}"
            )
        if problems:
            raise ConfigError(*problems)


def precedence(version: str) -> tuple[object, ...]:
    """Return a key that sorts semantic versions as their specification says."""
    core, _, pre = version.partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    # What has no pre-release comes after all that have one; numbers come before words.
    parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre.split(".") if pre)
    return (numbers, not pre, parts)
