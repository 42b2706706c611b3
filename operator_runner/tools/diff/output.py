"""Print previews as unified diffs of YAML, or as JSON."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from operator_runner.core.field_paths import ABSENT, changed_fields
from operator_runner.core.model import Json
from operator_runner.core.object_diff import ChangeType, ObjectDifference
from operator_runner.reconcile.preview import Preview
from operator_runner.telemetry.printable import printable
from operator_runner.telemetry.runs.record import object_json
from operator_runner.tools import yaml_io
from operator_runner.tools.task_paths import with_short_paths

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def with_relative_paths(preview: Preview, project: Path) -> Preview:
    """Return a preview whose paths of tasks are relative to the project, as in other commands."""
    folder = f"{project}/"

    def relative(text: str) -> str:
        return with_short_paths(text.replace(folder, ""))

    return replace(
        preview,
        unpreviewed=tuple(map(relative, preview.unpreviewed)),
        failure=relative(preview.failure),
    )


def preview_lines(preview: Preview) -> Iterator[str]:
    """Yield the diff of each object of a preview, and what could not be previewed."""
    for difference in preview.differences:
        yield from _diff_lines(difference)
    if preview.unpreviewed:
        yield f"Not previewed for {preview.ref}:"
        yield from (f"  {printable(each)}" for each in preview.unpreviewed)


def painted(line: str) -> str:
    """Return a line of a diff in its colour; click removes it where there is no terminal."""
    colour = _COLOURS.get(line[:1])
    return line if colour is None else click.style(line, fg=colour)


def summary(previews: Sequence[Preview]) -> str:
    """Return the counts: `2 of 3 resources with differences; objects: 1 created, 2 changed`.

    Failed runs are counted at the end.
    """
    differing = sum(bool(each.differences) for each in previews)
    noun = "resource" if len(previews) == 1 else "resources"
    failed = sum(bool(each.failure) for each in previews)
    end = f"; {failed} failed" if failed else ""
    if not differing:
        return f"No differences, {len(previews)} {noun}{end}"
    counts = Counter(each.change for one in previews for each in one.differences)
    parts = (f"{counts[change]} {change.value}" for change in ChangeType if counts[change])
    return (
        f"{differing} of {len(previews)} {noun} with differences; objects: {', '.join(parts)}{end}"
    )


def as_json(preview: Preview) -> Json:
    """Return a preview as `--output=json` prints it."""
    return {
        "resource": object_json(preview.ref),
        "objects": [_object(each) for each in preview.differences],
        "notPreviewed": list(preview.unpreviewed),
        "error": preview.failure or None,
    }


def _object(difference: ObjectDifference) -> Json:
    found = {**object_json(difference.ref), "change": difference.change.value}
    if difference.change is not ChangeType.CHANGED:
        return {**found, "before": difference.before, "after": difference.after}
    fields = [
        {
            "path": path,
            **({} if old is ABSENT else {"before": old}),
            **({} if new is ABSENT else {"after": new}),
        }
        for path, old, new in changed_fields(difference.before, difference.after)
    ]
    return {**found, "fields": fields}


def _diff_lines(difference: ObjectDifference) -> Iterator[str]:
    ref = difference.ref
    name = f"{ref.gvk.api_version} {ref}"
    before, after = (
        [] if side is None else yaml_io.dump(side).splitlines()
        for side in (difference.before, difference.after)
    )
    titles = (
        name if difference.before is not None else "(does not exist)",
        name if difference.after is not None else "(deleted)",
    )
    for line in difflib.unified_diff(before, after, *titles, lineterm=""):
        yield printable(line)
