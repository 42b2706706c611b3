"""Read the annotations of a resource that override settings of its runs. Pure.

Example:
    metadata:
      annotations:
        ansible.sdk.operatorframework.io/reconcile-period: 5m
        ansible.sdk.operatorframework.io/max-runner-artifacts: "50"
        ansible.sdk.operatorframework.io/verbosity: "4"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from operator_runner.core.durations import parse_duration
from operator_runner.core.model import Drift, Json
from operator_runner.reconcile.request_annotations import DRIFT_ANNOTATION

ERROR_CHANGED = "invalid annotation changed"
"""Detail of the cause for an edit of an annotation with which the resource was not run."""
_PREFIX = "ansible.sdk.operatorframework.io/"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_MAX_VERBOSITY = 7
_MAX_ARTIFACTS = 100
"""Users with write access to a resource could fill the disk of the operator."""
_POLICIES = tuple(each.value for each in Drift)
_SHOWN = 40
_MIN_PERIOD = timedelta(seconds=1)
"""Minimum period; shorter ones of flags, watches and annotations are raised to it."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings of one resource; each that is not None replaces that of the watch and the flags."""

    period: timedelta | None = None
    """Time between two periodic runs; zero disables them."""
    artifacts: int | None = None
    """Number of runs whose artifacts are kept, 1..100."""
    verbosity: int | None = None
    """Number of v in -vvv, 0..7."""
    error: str = ""
    """The error of invalid annotations, with which the resource is not run; else empty."""


def read_overrides(body: Json, *, as_job: bool = False) -> Overrides:
    """Return the overrides of a resource; invalid numbers are ignored.

    `as_job` is whether runs are Jobs: their plays cannot be previewed.

    An invalid period is an error, as in ansible-operator. So is an invalid policy of drift, because
    the default policy may write what the user wants to keep.
    """
    annotations = body["metadata"].get("annotations") or {}
    period, error = None, ""
    if (text := annotations.get(f"{_PREFIX}reconcile-period")) is not None:
        try:
            period = max(parse_duration(text), timedelta(0))
        except ValueError as problem:
            error = f"Unable to parse reconcile period annotation: {problem}"
    if (policy := annotations.get(DRIFT_ANNOTATION)) is not None and policy not in _POLICIES:
        error = error or (
            f"annotation {DRIFT_ANNOTATION}: {policy[:_SHOWN]!r} is not one of"
            f" {', '.join(_POLICIES)}"
        )
    if as_job and policy == Drift.WARN.value:
        error = error or (
            f"annotation {DRIFT_ANNOTATION}: {policy!r} cannot be used for runs that are Jobs;"
            " write 'enforce' or 'ignore'"
        )
    artifacts = _integer(annotations.get(f"{_PREFIX}max-runner-artifacts"))
    verbosity = _integer(annotations.get(f"{_PREFIX}verbosity"))
    return Overrides(
        period=period,
        artifacts=None if artifacts is None else _kept(artifacts),
        verbosity=None if verbosity is None else min(max(verbosity, 0), _MAX_VERBOSITY),
        error=error,
    )


def _kept(artifacts: int) -> int:
    """Return how many artifacts are kept; 0 and less is all of them, up to the maximum."""
    return min(artifacts, _MAX_ARTIFACTS) if artifacts > 0 else _MAX_ARTIFACTS


def clamp_period(period: timedelta) -> timedelta:
    """Return the period, at least a second; zero stays zero."""
    return max(period, _MIN_PERIOD) if period > timedelta(0) else timedelta(0)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and _INTEGER.fullmatch(text) else None
