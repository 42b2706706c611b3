"""Compare resourceVersions of one kind: they compare as numbers since Kubernetes 1.35. Pure."""

from __future__ import annotations


def is_certainly_older(version: str, other: str) -> bool:
    """Return whether a version was written before the other; False if that is unknown."""
    return version.isdigit() and other.isdigit() and int(version) < int(other)


def may_be_older(version: str, other: str) -> bool:
    """Return whether a version may have been written before the other; equal ones were not."""
    if version.isdigit() and other.isdigit():
        return int(version) < int(other)
    return version != other
