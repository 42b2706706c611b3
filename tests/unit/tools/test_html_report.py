"""The HTML page of many runs."""

from __future__ import annotations

from typing import Any

from operator_runner.tools.runs.html_report import report_of_runs


def run(number: int, **more: Any) -> dict[str, Any]:
    """Return the record of a run that began in this minute and took 30 s."""
    resource = {"apiVersion": "example.com/v1", "kind": "Page", "namespace": "a", "name": "home"}
    return {
        "id": f"{number:016x}",
        "resource": resource,
        "outcome": "succeeded",
        "started": f"2026-01-05T12:0{number}:00.000Z",
        "seconds": 30.0,
        **more,
    }


def test_the_timeline_has_each_run_where_it_was() -> None:
    """In percent of the time from the first start to the last end."""
    page = report_of_runs([(run(0), ""), (run(1), ""), (run(2), "")])
    assert "left: 0.0%; width: 20.0%" in page
    assert "left: 40.0%; width: 20.0%" in page
    assert "left: 80.0%; width: 20.0%" in page


def test_a_failed_run_is_open_and_counted() -> None:
    """Its message and its output are escaped."""
    failed = run(1, outcome="failed", message="no <b>home</b>")
    page = report_of_runs([(run(0), "fine"), (failed, "<i>PLAY</i>")])
    assert "<h1>2 runs, 1 failed</h1>" in page
    assert page.count("<details>") == page.count("<details open>") == 1
    assert "no &lt;b&gt;home&lt;/b&gt;" in page
    assert "&lt;i&gt;PLAY&lt;/i&gt;" in page


def test_a_report_without_runs_is_a_page() -> None:
    """Its title has the result."""
    assert "<title>0 runs, 0 failed</title>" in report_of_runs([])
