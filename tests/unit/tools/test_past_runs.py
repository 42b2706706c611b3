"""Past runs from Events and files."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from operator_runner.ansible import rerun_command
from operator_runner.ansible.history import add_message, write_record
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.model import (
    GVK,
    Cause,
    ObjectRef,
    RunContent,
    RunOutcome,
    RunRequest,
    Stats,
    TaskFailure,
    Trigger,
)
from operator_runner.kube.events import DURATION_ANNOTATION
from operator_runner.tools.run_lines import (
    History,
    RunLine,
    folded,
    header,
    is_valid_event,
    line_of,
    pod_of_failure,
)
from operator_runner.tools.runs.display import resource_name
from operator_runner.tools.runs.listing import run_of
from operator_runner.tools.runs.past_runs import from_files
from operator_runner.tools.runs.why import why

FOO = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
CLUSTER = ObjectRef(GVK("", "v1", "Node"), "", "a")
CAUSES = (Cause(Trigger.SPEC, "spec.size"), Cause(Trigger.PERIOD))


@pytest.fixture
def dirs(tmp_path: Path) -> RunDirs:
    """Return the private data dirs of a running operator."""
    return RunDirs(tmp_path)


def kept(dirs: RunDirs, ref: ObjectRef, run_id: str, outcome: RunOutcome | None) -> None:
    """Leave the file of a run that began an hour ago."""
    request = RunRequest(run_id, ref, RunContent(), {}, "", 2, 20, None, CAUSES)
    with dirs.open(ref) as rundir:
        write_record(rundir, request, datetime.now(UTC) - timedelta(hours=1), outcome)
    # Records have milliseconds, and are listed by time: the next one is later.
    time.sleep(0.005)


def show(base: Path, *args: str) -> tuple[int, str]:
    nowhere = str(base / "no-kubeconfig")
    result = CliRunner().invoke(why, [*args, f"--work-dir={base}", f"--kubeconfig={nowhere}"])
    return result.exit_code, result.output


@pytest.mark.parametrize("name", ["system:viewer", "a" * 300], ids=["colon", "long"])
def test_runs_of_a_resource_of_any_name_are_found(dirs: RunDirs, tmp_path: Path, name: str) -> None:
    """With the command that repeats the last one; a long name is not in the path."""
    ref = replace(FOO, name=name)
    kept(dirs, ref, "1", None)
    rerun_command.write(tmp_path, ref, rerun_command.Rerun("1", "ansible-playbook"))
    found = from_files(tmp_path, "foo", None, name)
    assert [line.run_id for line in found.lines] == ["1"]
    assert found.rerun is not None


def test_runs_in_a_directory_of_an_earlier_version_do_not_hide_later_ones(
    dirs: RunDirs, tmp_path: Path
) -> None:
    """The names of directories had colons."""
    ref = replace(FOO, name="system:viewer")
    kept(dirs, ref, "1", None)
    path = dirs.path_of(ref)
    path.rename(path.with_name(ref.name))
    assert [line.run_id for line in from_files(tmp_path, "foo", None, ref.name).lines] == ["1"]
    kept(dirs, ref, "2", None)
    assert [line.run_id for line in from_files(tmp_path, "foo", None, ref.name).lines] == ["2"]


def test_a_kind_of_two_groups_is_chosen_by_the_cluster(dirs: RunDirs, tmp_path: Path) -> None:
    """The work dir does not have the order of groups that other commands and kubectl use."""
    other = replace(FOO, gvk=GVK("other.example.com", "v1", "Foo"))
    kept(dirs, FOO, "1", None)
    kept(dirs, other, "2", None)
    status, output = show(tmp_path, "foo/a")
    assert status == 1
    assert "foo may be foo.example.com or foo.other.example.com" in output
    assert "2" in show(tmp_path, "foo.other.example.com/a")[1]


def test_a_replaced_file_of_a_run_is_not_shown(dirs: RunDirs, tmp_path: Path) -> None:
    """A run can write there: a link is not followed, and other content is ignored."""
    secret = tmp_path / "secret.json"
    for run_id in "1234567":
        kept(dirs, FOO, run_id, None)
    linked, *changed, coloured = (
        dirs.path_of(FOO) / "artifacts" / run_id / "run.json" for run_id in "123456"
    )
    linked.rename(secret)
    linked.symlink_to(secret)
    content = json.loads(secret.read_text())
    early = {**content, "started": "0001-01-01T00:00:00+14:00"}
    odd = {**content, "started": "2026-01-01T00:00:00", "seconds": "1", "outcome": None}
    for file, put in zip(changed, ('{"run_id": 2}', early, "[" * 100_000, odd), strict=True):
        file.write_text(put if isinstance(put, str) else json.dumps(put))
    coloured.write_text(json.dumps({**content, "message": "\x1b[2Jgone"}))
    lines = from_files(tmp_path, "foo", None, "a").lines
    assert len(lines) == 3
    text = "".join(line.text(datetime.now(UTC)) for line in lines)
    assert "[2Jgone" in text
    assert "\x1b" not in text


def test_files_list_every_kept_run(dirs: RunDirs, tmp_path: Path) -> None:
    """Newest first, with duration, outcome, all causes, and what went wrong."""
    kept(dirs, FOO, "1", RunOutcome(Stats(ok=1)))
    failure = TaskFailure("Deploy", "no such image", path="/opt/ansible/roles/foo/tasks/main.yml:3")
    kept(dirs, FOO, "2", RunOutcome(None, (failure,)))
    kept(dirs, FOO, "3", None)
    lines = from_files(tmp_path, "foo", None, "a").lines
    assert {line.run_id for line in lines} == {"1", "2", "3"}
    assert [line.outcome for line in lines] == ["cancelled", "failed", "succeeded"]
    assert {line.why for line in lines} == {"spec: spec.size; period"}
    assert all(line.seconds is not None and line.seconds >= 3600 for line in lines)
    assert lines[1].note == "no such image (task 'Deploy' at roles/foo/tasks/main.yml:3)"
    status, text = show(tmp_path, "Foo/a", "-n", "default", "--limit=2")
    assert status == 0
    assert text.count("spec: spec.size; period") == 2
    assert "no such image" in text
    status, text = show(tmp_path, "Foo/a", "-n", "default", "--limit=2", "--output=json")
    data = json.loads(text)
    assert (status, data["suspended"]) == (0, False)
    assert [(each["runID"], each["outcome"]) for each in data["items"]] == [
        (line.run_id, line.outcome) for line in lines[:2]
    ]
    assert data["items"][1]["message"] == lines[1].note


def test_cluster_scoped_resources_are_found(dirs: RunDirs, tmp_path: Path) -> None:
    """They have no namespace in the layout, and the core group has no folder."""
    kept(dirs, CLUSTER, "1", RunOutcome(Stats()))
    assert len(from_files(tmp_path, "node", None, "a").lines) == 1
    assert from_files(tmp_path, "nodes", None, "b").lines == ()


def test_half_a_file_is_passed_over(dirs: RunDirs, tmp_path: Path) -> None:
    """The operator may be writing it at this moment."""
    kept(dirs, FOO, "1", RunOutcome(Stats()))
    (file,) = tmp_path.rglob("run.json")
    file.write_text(file.read_text()[:20])
    assert from_files(tmp_path, "foo", None, "a").lines == ()


def test_the_file_contains_only_displayed_data(dirs: RunDirs, tmp_path: Path) -> None:
    """Causes are words, not values, and the file is private."""
    kept(dirs, FOO, "1", RunOutcome(Stats()))
    (file,) = tmp_path.rglob("run.json")
    assert file.stat().st_mode & 0o077 == 0
    content = json.loads(file.read_text())
    assert content["causes"] == [
        {"trigger": "spec", "detail": "spec.size"},
        {"trigger": "period", "detail": ""},
    ]


def event(**more: Any) -> dict[str, Any]:
    annotations = {
        "operator-runner.dev/cause": "spec: spec.size",
        "operator-runner.dev/duration-seconds": "1.234",
        "operator-runner.dev/run-id": "4f0c19d2a8b3e671",
    }
    return {
        "metadata": {"annotations": annotations},
        "eventTime": "2026-01-05T12:00:00.000000Z",
        "type": "Normal",
        "reason": "Successful",
        "note": "Reconciled: 1 tasks ok, 1 changed (why: spec: spec.size)",
        **more,
    }


def test_an_event_is_a_line() -> None:
    """Time, duration, outcome, causes; the note only where something went wrong."""
    line = line_of(event())
    assert (line.seconds, line.outcome, line.why) == (1.234, "succeeded", "spec: spec.size")
    now = datetime(2026, 1, 5, 12, 5, 3, tzinfo=UTC)
    assert line.text(now).split() == [
        *("2026-01-05T12:00:00Z", "5m3s", "1.2", "s", "succeeded", "4f0c19d2a8b3e671"),
        *("spec:", "spec.size"),
    ]
    failed = line_of(
        event(
            type="Warning",
            reason="Failed",
            note="no (why: spec: spec.size)",
            series={"count": 7, "lastObservedTime": "2026-01-05T12:09:00.000000Z"},
        )
    )
    assert (failed.outcome, failed.note, failed.count) == ("failed", "no", 7)
    assert failed.ended == datetime(2026, 1, 5, 12, 9, tzinfo=UTC)
    assert "failed (x7)" in failed.text(now)


@pytest.mark.parametrize(
    "forged",
    [
        {"eventTime": None},
        {"eventTime": "yesterday"},
        {"eventTime": "2026-01-05T12:00:00"},
        {"eventTime": "0001-01-01T00:00:00+23:00"},
        {"metadata": {"annotations": {DURATION_ANNOTATION: "long"}}},
        {"metadata": {"annotations": {DURATION_ANNOTATION: "nan"}}},
        {"metadata": {"annotations": {DURATION_ANNOTATION: "1e300"}}},
        {"metadata": {"annotations": {DURATION_ANNOTATION: "9e10"}}},
        {"note": None},
        {"reason": None},
    ],
)
def test_an_event_of_another_shape_is_left_out(forged: dict[str, Any]) -> None:
    """Whoever may create Events cannot end the commands that read them."""
    assert is_valid_event(event(type="Warning"))
    altered = event(type="Warning") | forged
    assert not is_valid_event({key: value for key, value in altered.items() if value is not None})


@pytest.mark.parametrize("wrong", ["Foo/", "/a", "Foo/a/b"])
def test_an_invalid_name_is_reported_with_the_format(wrong: str, tmp_path: Path) -> None:
    """KIND/NAME, with an example."""
    status, text = show(tmp_path, wrong)
    assert status == 2
    assert "write KIND/NAME" in text


def test_an_unknown_kind_differs_from_a_quiet_one(dirs: RunDirs, tmp_path: Path) -> None:
    """A misspelt kind is an error that names the nearest one; no runs are a message."""
    kept(dirs, FOO, "1", RunOutcome(Stats()))
    status, text = show(tmp_path, "fooo/a")
    assert status == 1
    assert 'the resource type "fooo" is unknown; did you mean foo.v1.example.com?' in text
    assert "kinds with runs in" in text
    status, text = show(tmp_path, "foos/b", "-n", "default")
    assert status == 0
    assert text == f"No runs of Foo default/b are recorded in {tmp_path}.\n"


def test_times_are_of_the_end_in_one_zone(dirs: RunDirs, tmp_path: Path) -> None:
    """UTC as in JSON logs, below a header; of files and of Events the end of the run."""
    kept(dirs, FOO, "1", RunOutcome(Stats()))
    (line,) = from_files(tmp_path, "foo", None, "a").lines
    assert datetime.now(UTC) - line.ended < timedelta(minutes=30)
    _, text = show(tmp_path, "Foos.v1.example.com/a")
    header, first = text.splitlines()
    assert header.split() == ["ENDED", "AGE", "DURATION", "RESULT", "RUN", "CAUSE"]
    assert first.startswith(line.ended.strftime("%Y-%m-%dT%H:%M:"))


def test_the_replica_is_shown_if_there_are_several() -> None:
    """Events name the Pod that ran a resource."""
    now = datetime.now(UTC)
    first = RunLine(now, 1.0, "succeeded", "spec", run_id="1", replica="web-7d4b9-k9qzl")
    second = replace(first, replica="web-7d4b9-x2x8p")
    assert "REPLICA" not in header(History(FOO, (first, first)).widths())
    assert "REPLICA" in header(History(FOO, (first, first)).widths(is_wide=True))

    history = History(FOO, (first, second))

    columns = header(history.widths())
    assert columns.split()[-2:] == ["REPLICA", "CAUSE"]
    for line in history.lines:
        shown = line.text(now, history.widths())
        assert shown.index(line.replica) == columns.index("REPLICA")
        assert shown.index("spec") == columns.index("CAUSE")


def test_an_event_is_a_run_as_the_api_has_it() -> None:
    """With the start of the run, and the replica that ran it as the operator."""
    regarding = {"apiVersion": "example.com/v1", "kind": "Foo", "namespace": "web", "name": "a"}
    found = run_of(event(regarding=regarding, reportingInstance="web-1"))
    assert found == {
        "id": "4f0c19d2a8b3e671",
        "resource": regarding,
        "outcome": "succeeded",
        "started": "2026-01-05T11:59:58.766Z",
        "finished": "2026-01-05T12:00:00.000Z",
        "causes": [{"trigger": "spec: spec.size"}],
        "message": "",
        "seconds": 1.234,
        "operator": "web-1",
    }


def test_the_pod_of_a_failed_run_prints_how_to_repeat_it() -> None:
    """Only it has the files: there is no hint after a success, and if the Pod does not answer."""
    line = RunLine(datetime.now(UTC), 1.0, "failed", "spec", run_id="1", replica="web-2")
    operators = ["operator at http://127.0.0.1:8443", "Pod apps/web-1", "Pod apps/web-2"]
    pod = pod_of_failure([line], operators)
    assert History(FOO, (line,), pod=pod).rerun_hint == (
        "kubectl exec --namespace=apps web-2 -- "
        "operator-runner why foo.example.com/a --namespace=default"
    )
    assert pod_of_failure([line], operators[:2]) == ""
    assert pod_of_failure([replace(line, outcome="succeeded"), line], operators) == ""
    assert History(FOO, (line,)).rerun_hint == ""


def test_the_resource_of_a_run_is_shown_with_its_group_where_kinds_share_a_name() -> None:
    """As in `get`; the group of the core API is empty."""
    run = {"resource": {"apiVersion": "two.example.com/v1", "kind": "Twin", "name": "a"}}
    assert resource_name(run) == "twin/a"
    assert resource_name(run, with_group=True) == "twin.two.example.com/a"
    service = {"resource": {"apiVersion": "v1", "kind": "Service", "name": "a"}}
    assert resource_name(service, with_group=True) == "service/a"


def test_a_history_of_a_kind_names_the_resources() -> None:
    """`why KIND` has a column with namespace and name."""
    now = datetime.now(UTC)
    lines = tuple(
        RunLine(now, 1.0, "succeeded", "spec", ref=replace(FOO, name=name))
        for name in ("a", "bcdef")
    )
    history = History(replace(FOO, name=""), lines)
    columns = header(history.widths())
    assert columns.split()[-2:] == ["RESOURCE", "CAUSE"]
    for line in lines:
        shown = line.text(now, history.widths())
        assert shown.index(line.place) == columns.index("RESOURCE")
        assert shown.index("spec") == columns.index("CAUSE")
    assert [each["name"] for each in map(RunLine.as_json, lines)] == ["a", "bcdef"]


def test_failures_that_repeat_are_one_line() -> None:
    """As a series of Events is; another message or another run between them begins a new line."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def line(minute: int, outcome: str, note: str = "") -> RunLine:
        return RunLine(noon + timedelta(minutes=minute), 1.0, outcome, "retry", note)

    lines = [line(0, "failed", "a"), line(1, "succeeded"), line(2, "failed", "a")]
    lines += [line(3, "failed", "a"), line(4, "failed", "b"), line(5, "succeeded")]
    found = [(each.outcome, each.note, each.count) for each in folded(lines)]
    assert found == [
        ("succeeded", "", 1),
        ("failed", "b", 1),
        ("failed", "a", 2),
        ("succeeded", "", 1),
        ("failed", "a", 1),
    ]


def test_later_findings_are_shown_with_their_run(dirs: RunDirs, tmp_path: Path) -> None:
    """As long as its artifacts are kept; the error of a failed run is shown first."""
    kept(dirs, FOO, "1", RunOutcome(Stats(ok=1)))
    add_message(dirs, FOO, "1", "not idempotent: a\nnot idempotent: b")
    add_message(dirs, FOO, "gone", "not idempotent: a")
    (line,) = from_files(tmp_path, "foo", None, "a").lines
    assert (line.outcome, line.note) == ("succeeded", "not idempotent: a\nnot idempotent: b")
    assert not list(tmp_path.rglob("gone"))
    kept(dirs, FOO, "1", RunOutcome(None, (TaskFailure("t", "no such image"),)))
    assert from_files(tmp_path, "foo", None, "a").lines[0].note == "no such image (task 't')"
