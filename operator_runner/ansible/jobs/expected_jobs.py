"""Jobs of earlier runs that are running, until a run adopts them or they are deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from operator_runner.ansible.jobs.client import JobClient
from operator_runner.ansible.jobs.manifest import UID_LABEL
from operator_runner.core.model import Json, ObjectRef


@dataclass(frozen=True, slots=True)
class ExpectedJob:
    """A Job that a run of its resource may adopt."""

    client: JobClient
    job: Json
    token: str
    ref: ObjectRef
    """Its resource, which may have been deleted, or created again with another uid."""

    @property
    def name(self) -> str:
        """The name of the Job."""
        return str(self.job["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The uid of its resource."""
        return str(self.job["metadata"]["labels"][UID_LABEL])


class ExpectedJobs:
    """The expected Jobs of this operator."""

    def __init__(self) -> None:
        """Start without Jobs."""
        self._jobs: dict[str, ExpectedJob] = {}
        """By the uid of the Job."""

    def add(self, expected: ExpectedJob) -> None:
        """Keep a Job."""
        self._jobs[expected.job["metadata"]["uid"]] = expected

    def take(self, ref: ObjectRef, current: str) -> list[ExpectedJob]:
        """Return the Jobs for a resource, but those of the uid `current`, and forget them."""
        return self._take(lambda each: each.ref == ref and each.uid != current)

    def forget(self, is_lost: Callable[[str], bool]) -> None:
        """Forget the Jobs of resources, by uid."""
        self._take(lambda each: is_lost(each.uid))

    def _take(self, is_chosen: Callable[[ExpectedJob], bool]) -> list[ExpectedJob]:
        chosen = [key for key, each in self._jobs.items() if is_chosen(each)]
        return [self._jobs.pop(key) for key in chosen]
