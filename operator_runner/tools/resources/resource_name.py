"""Resources as users name them in commands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResourceName:
    """A resource as a user names it: `pages/page-sample`."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> ResourceName:
        """Split KIND/NAME. Raises ValueError."""
        kind, _, name = text.partition("/")
        if not kind or not name or "/" in name:
            raise ValueError(f"invalid resource {text!r}: write KIND/NAME, such as pages/home")
        return cls(kind, name)
