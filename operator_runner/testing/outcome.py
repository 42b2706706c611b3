"""The outcome of a reconcile, as tests read it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from operator_runner.core.texts import shortened

Json = dict[str, Any]

_MESSAGE_CHARACTERS = 400
_VALUE_CHARACTERS = 80
_NAMED_OBJECTS = 6
"""Objects in the text of an outcome."""
_SECRET_KINDS = frozenset({"Secret", "SealedSecret", "TokenRequest"})
_SECRET_FIELDS = ("data", "stringData", "spec", "status")


class HiddenText(str):
    """A text whose representation does not show it, because reports of tests are often public."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return a constant."""
        return "'(hidden)'"


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a reconcile. `task` and `path` (file:line) are empty if no task has failed."""

    message: str
    task: str = ""
    path: str = ""

    def __str__(self) -> str:
        """Return one line, shortened."""
        where = f" ({self.path})" if self.path else ""
        task = f"task {self.task!r}{where}: " if self.task else ""
        return f"{task}{shortened(self.message, _MESSAGE_CHARACTERS)}"


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the run; `result` is ok, changed, failed, ignored, skipped or unreachable."""

    name: str
    action: str
    result: str
    path: str
    """File and line."""


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field that the run has changed, with its values as JSON, None if they may be secret.

    An empty value means that the object did not have the field, or has it no longer.
    """

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        """Return path and values, shortened."""
        if self.before is None or self.after is None:
            return f"{self.path} (hidden)"
        values = [
            shortened(value, _VALUE_CHARACTERS) or "absent" for value in (self.before, self.after)
        ]
        return f"{self.path}: {values[0]} -> {values[1]}"


@dataclass(frozen=True, slots=True)
class WrittenObject:
    """An object that the run has created, changed or deleted."""

    api_version: str
    kind: str
    namespace: str
    """Empty for cluster-scoped objects."""
    name: str
    body: Json | None = field(default=None, repr=False, compare=False)
    """The object after the run, None if it is deleted."""
    differences: tuple[FieldDifference, ...] = ()
    """The fields that the run has changed, empty if it has created or deleted the object."""

    def __repr__(self) -> str:
        """Return kind, name and changed fields."""
        fields = "; ".join(str(each) for each in self.differences)
        return f"{self.kind}/{self.name}" + (f" ({fields})" if fields else "")


class WrittenObjects(list[WrittenObject]):
    """Objects in the order in which the run has written them: `outcome.created`."""

    def __init__(self, objects: Iterable[WrittenObject], verb: str, resource: str) -> None:
        """`verb` and `resource` are for messages."""
        super().__init__(objects)
        self._verb = verb
        self._resource = resource

    def __call__(self, kind: str, name: str, *, namespace: str | None = None) -> Json:
        """Return the object with this kind and name; fail the test if there is none.

        `namespace` is only needed where objects differ in nothing else. Deleted objects have no
        content but their name.
        """
        for each in self:
            if (each.kind, each.name) == (kind, name) and namespace in {None, each.namespace}:
                return each.body or _identity(each)
        found = ", ".join(f"{each.kind}/{each.name}" for each in self) or "nothing"
        raise AssertionError(
            f"{kind}/{name} was not {self._verb} by {self._resource}, "
            f"which has {self._verb} {found}"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one reconcile of a resource."""

    name: str
    """Kind and name of the resource: Report/weekly."""
    successful: bool
    failure: Failure | None
    """None if it was successful."""
    resource: Json | None = field(repr=False)
    """The resource after the run, None if it is deleted."""
    created: WrittenObjects
    changed: WrittenObjects
    """Objects that existed before. Writes that leave an object as it was do not count."""
    deleted: WrittenObjects
    events: tuple[Json, ...] = field(repr=False)
    """Kubernetes Events about the resource."""
    tasks: tuple[Task, ...] = field(repr=False)
    requeue_after: timedelta | None
    """The delay that the role requested by the module requeue_after; None if it did not."""
    output: str = field(repr=False)
    """The log of the operator, with the output of the play."""

    @property
    def status(self) -> Json:
        """The status of the resource after the run, empty if it has none."""
        status = (self.resource or {}).get("status")
        return status if isinstance(status, dict) else {}

    def condition(self, type_: str) -> Json:
        """Return a condition of the resource; fail the test if it has none of this type."""
        conditions = self.status.get("conditions") or ()
        found = {str(each["type"]): each for each in conditions}
        if type_ not in found:
            listed = ", ".join(found) or "none"
            raise AssertionError(f"{self.name} has no condition {type_}; it has {listed}")
        return dict(found[type_])

    def __repr__(self) -> str:
        """Return the result: the failure first, because pytest shortens long texts."""
        if self.failure is not None:
            return f"<{self.name} failed: {self.failure}>"
        return f"<{self.name} succeeded: {'; '.join(self._counts()) or 'wrote nothing'}>"

    def _counts(self) -> Iterator[str]:
        for verb in ("created", "changed", "deleted"):
            objects: WrittenObjects = getattr(self, verb)
            if objects:
                named = ", ".join(f"{each.kind}/{each.name}" for each in objects[:_NAMED_OBJECTS])
                more = len(objects) - _NAMED_OBJECTS
                yield f"{verb} {named}" + (f" and {more} more" if more > 0 else "")


def outcome_of(answer: Json, resource: Json, *, project: Path, output: str) -> Outcome:
    """Return the outcome of the reconcile of `resource`, from the answer of the operator.

    Paths of files are those in `project`.
    """
    record = answer["record"]
    name = f"{resource['kind']}/{resource['metadata']['name']}"
    tasks = tuple(
        Task(each["name"], each["action"], each["result"], _relative(each["path"], project))
        for each in record.get("tasks", ())
    )
    written = [(_written(each, record), set(each["verbs"])) for each in answer["objects"]]
    is_requeued = answer.get("again") == "requeue_after" and answer.get("seconds") is not None
    return Outcome(
        name=name,
        successful=answer["successful"],
        failure=None if answer["successful"] else _failure(answer, project),
        resource=answer["resource"],
        created=WrittenObjects(
            (each for each, verbs in written if "create" in verbs and each.body), "created", name
        ),
        changed=WrittenObjects(
            (each for each, _ in written if each.differences and not _is_deleted(each)),
            "changed",
            name,
        ),
        deleted=WrittenObjects(
            (each for each, verbs in written if "delete" in verbs and _is_deleted(each)),
            "deleted",
            name,
        ),
        events=tuple(answer["events"]),
        tasks=tasks,
        requeue_after=timedelta(seconds=answer["seconds"]) if is_requeued else None,
        output=output,
    )


def _failure(answer: Json, project: Path) -> Failure:
    record = answer["record"]
    task = record.get("failedTask") or {}
    message = record.get("message") or answer.get("message") or "see the output"
    return Failure(message, task.get("name", ""), _relative(task.get("path", ""), project))


def _written(entry: Json, record: Json) -> WrittenObject:
    about = entry["object"]
    differences = tuple(
        FieldDifference(each["path"], each.get("before"), each.get("after"))
        for each in record.get("changes", ())
        if each["object"] == about and "create" not in entry["verbs"]
    )
    return WrittenObject(
        about["apiVersion"],
        about["kind"],
        about.get("namespace", ""),
        about["name"],
        _without_secrets(entry["body"]),
        differences,
    )


def _is_deleted(written: WrittenObject) -> bool:
    """Return whether an object is gone, or waits for its finalizers."""
    return written.body is None or "deletionTimestamp" in written.body["metadata"]


def _without_secrets(body: Json | None) -> Json | None:
    """Return an object whose values are hidden in reports if its kind is for secrets."""
    if body is None or body.get("kind") not in _SECRET_KINDS:
        return body
    metadata = {**body["metadata"]}
    if "annotations" in metadata:
        metadata["annotations"] = _hidden(metadata["annotations"])
    secret = {name: _hidden(body[name]) for name in _SECRET_FIELDS if name in body}
    return {**body, "metadata": metadata, **secret}


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _hidden(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each) for each in value]
    return HiddenText(value) if isinstance(value, str) else value


def _identity(written: WrittenObject) -> Json:
    metadata = {"name": written.name, "namespace": written.namespace}
    return {
        "apiVersion": written.api_version,
        "kind": written.kind,
        "metadata": {name: value for name, value in metadata.items() if value},
    }


def _relative(path: str, project: Path) -> str:
    return path.removeprefix(f"{project}/")
