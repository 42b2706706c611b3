"""Objects of resources, as a test says they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from operator_runner.controller.sources.own_writes import OwnWrites
from operator_runner.core.model import Json, ObjectRef
from operator_runner.core.resource_states import ResourceStates
from operator_runner.kube.object_readiness import DependentsReadiness


@dataclass
class FakeObjects:
    """The objects of each resource."""

    of: Callable[[ObjectRef], Sequence[Json]] = lambda _: ()


@dataclass
class FakeDependents:
    """Without objects, and ready, unless a test says something else."""

    writes: OwnWrites = field(default_factory=lambda: OwnWrites(ResourceStates()))
    objects: FakeObjects = field(default_factory=FakeObjects)
    readiness: Callable[..., DependentsReadiness] = lambda *_: DependentsReadiness()
    catching_up: Callable[[ObjectRef], Awaitable[None] | None] = lambda _: None
    is_new: list[bool] = field(default_factory=list)
    """Whether each run was the first one of a new resource."""

    @contextmanager
    def hold_events(self, owner: ObjectRef, *, is_new: bool) -> Iterator[None]:  # noqa: ARG002
        """See the port."""
        self.is_new.append(is_new)
        yield
