"""`operator-runner ui` in Debian's Chromium: real clicks and keys, a real operator, no reload."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from operator_runner.devcluster import Cluster
from operator_runner.kube.cluster import CONTROLLER
from tests.functional.conftest import PROJECT
from tests.functional.test_operator import KIND, ROLE, echo
from tests.support.chromium import Page, chromium
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.scaffold import OPERATOR_RUNNER
from tests.support.waiting import eventually

TASKS = """
- name: Check the text
  when: refuse is defined
  ansible.builtin.fail:
    msg: "{{ refuse }}"
"""
HOSTILE = "<script>window.pwned=1</script><img src=x onerror='window.pwned=1'>&lt;b&gt;"
SCRIPT = """
window.focused = () => {
  const e = document.activeElement;
  return e.labels?.[0]?.innerText ?? e.innerText ?? '';
};
window.contrasts = () => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const own = e => Array.from(e.childNodes).some(n => n.nodeType === 3 && n.data.trim());
  return Array.from(document.querySelectorAll('body *'))
    .filter(e => own(e) && e.getClientRects().length && !e.closest('.unseen, .skip, noscript'))
    .map(e => {
      const [a, b] = [parse(getComputedStyle(e).color), ground(e)].map(light);
      return [e.innerText, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
    });
};
"""


BROKEN_WORDS = """Array.from(document.querySelectorAll('.timeline :is(td, th):nth-child(2)'))
  .filter((cell) => /^[a-z]+$/i.test(cell.innerText))
  .filter((cell) => { const range = document.createRange(); range.selectNodeContents(cell);
    return new Set(Array.from(range.getClientRects(), (box) => box.y)).size > 1; })
  .map((cell) => cell.innerText)"""
"""The words in results of tasks that are broken at the end of a line."""


@dataclass
class Ui:
    """The page in a browser, its server, and the operator that it shows."""

    page: Page
    url: str
    process: subprocess.Popen[str]
    operator: Operator
    kubectl: Kubectl
    pictures: Path

    def open(self, view: str) -> None:
        """Load the page again, at a view; wait until it is live."""
        self.page.emulate()
        # A fragment alone would not load it.
        self.page.open("about:blank")
        self.page.open(f"{self.url}#/{view}")
        self.page.wait_for_text("Live", "#connection")

    def last_run(self, name: str) -> str:
        """Return the ID of the newest run that the page lists for a resource, or an empty one."""
        href = self.page.evaluate(
            "Array.from(document.querySelectorAll('#runs tbody tr'))"
            f".find(row => row.innerText.includes('echo/{name}'))?.querySelector('a').hash ?? ''"
        )
        return str(href).rpartition("/")[2]

    def picture(self, name: str) -> None:
        """Write a picture of what is shown now."""
        self.page.screenshot(self.pictures / f"{name}.png")


@pytest.fixture(scope="module")
def ui(
    control_plane_cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Ui]:
    """Start one operator, one server and one browser for the module."""
    # It is in the pictures, so it is not random; no other test uses it.
    namespace = "web-pages"
    control_plane_cluster.exec(["kubectl", "create", "namespace", namespace])
    kubectl = Kubectl(control_plane_cluster.bin / "kubectl", namespace)
    scratch = tmp_path_factory.mktemp("ui")
    project = Path(shutil.copytree(PROJECT, scratch / "project"))
    role = project / ROLE
    role.write_text(TASKS + role.read_text())
    kubeconfig = control_plane_cluster.kubeconfig
    operator = Operator(project, kubeconfig, namespace, scratch, {})
    (scratch / "work").mkdir()
    pictures: Path = request.config.getoption("--pictures") or scratch
    pictures.mkdir(parents=True, exist_ok=True)
    operator.start()
    with served(kubeconfig, namespace, scratch) as (process, url), chromium(scratch) as page:
        page.send("Page.addScriptToEvaluateOnNewDocument", source=SCRIPT)
        try:
            yield Ui(page, url, process, operator, kubectl, pictures)
        finally:
            operator.terminate()
    assert page.errors == []


@contextmanager
def served(
    kubeconfig: Path, namespace: str, scratch: Path
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve the page with the operator of a work dir; give the process and the URL."""
    command = [
        *(str(OPERATOR_RUNNER), "ui", "--no-browser", f"--kubeconfig={kubeconfig}"),
        *(f"--namespace={namespace}", f"--work-dir={scratch / 'work'}"),
    ]
    with (scratch / "ui.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("Serving http://127.0.0.1:"), (scratch / "ui.log").read_text()
        yield process, line.split()[1]
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        status = process.wait(180)
        process.stdout.close()
    # Ctrl-C is how a user ends it: no traceback.
    assert (status, (scratch / "ui.log").read_text()) == (130, "")


def listed(url: str) -> list[str]:
    """Return the labels of the resources that a page shows when it is opened."""
    with urllib.request.urlopen(f"{url}events", timeout=60) as stream:
        for line in stream:
            if line == b"event: resources\n":
                _, _, text = next(stream).decode().partition(": ")
                return [each["label"] for each in json.loads(text)["items"]]
    raise AssertionError("the stream has ended")


def loop_event(kubectl: Kubectl, name: str) -> Json:
    """Return an Event as the operator emits it for a resource whose runs trigger themselves."""
    found = kubectl.get(KIND, name)
    assert found is not None
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.loop"},
        "eventTime": now,
        "series": {"count": 4, "lastObservedTime": now},
        "reportingController": CONTROLLER,
        "reportingInstance": "manager-1",
        "action": "Reconcile",
        "reason": "ReconcileLoop",
        "type": "Warning",
        "note": "Throttled: each run triggers another (ConfigMap data.text)",
        "regarding": {
            "apiVersion": found["apiVersion"],
            "kind": found["kind"],
            "namespace": kubectl.namespace,
            "name": name,
            "uid": found["metadata"]["uid"],
        },
    }


def test_resources_and_an_edit_appear_without_a_reload(ui: Ui) -> None:
    """A resource that kubectl creates, and the run of its edit; a filter is kept meanwhile."""
    ui.open("resources")
    ui.page.evaluate("window.mark = 'same page'")
    ui.kubectl.apply(*(echo(name, sayThis="1") for name in ("home", "shop", "blog")))
    expected = {
        (f"echo/{name}", "True", "Succeeded", "spec: created") for name in ("blog", "home", "shop")
    }
    eventually(
        lambda: {(row[0], row[2], row[3], row[7]) for row in ui.page.rows("#resources")},
        expected.issubset,
        details=ui.operator.log,
    )
    ui.picture("resources-light")
    ui.page.emulate(dark=True)
    ui.picture("resources-dark")
    ui.page.emulate()

    ui.page.click("#filter")
    ui.page.type("home")
    eventually(lambda: ui.page.text("#caption-resources"), lambda text: "1 of " in text)
    ui.kubectl.merge(KIND, "home", {"spec": {"sayThis": "2"}})
    eventually(
        lambda: ui.page.rows("#resources"),
        lambda rows: [(row[0], row[7]) for row in rows] == [("echo/home", "spec: spec.sayThis")],
        details=ui.operator.log,
    )
    assert ui.page.evaluate("window.mark") == "same page"
    assert ui.page.evaluate("window.focused()") == "Filter"


def test_a_click_opens_a_run_with_its_timeline(ui: Ui) -> None:
    """Tasks and requests with their bars, changed fields as a diff, and the output."""
    ui.kubectl.apply(echo("timeline", sayThis="1"))
    ui.open("resources")
    eventually(lambda: "echo/timeline" in ui.page.text("#resources"))
    ui.page.click("nav a", "Runs")
    first = eventually(lambda: ui.last_run("timeline"), details=ui.operator.log)
    ui.kubectl.merge(KIND, "timeline", {"spec": {"sayThis": "2"}})
    run = eventually(lambda: ui.last_run("timeline"), lambda found: found not in {"", first})
    ui.picture("runs-light")
    ui.page.click(f"#runs a[href='#/runs/{run}']")
    ui.page.wait_for_text(f"Run {run}: succeeded", "#title-run")
    rows = eventually(lambda: ui.page.rows("#run-tasks"))
    task = next(row for row in rows if row[0].startswith("Say what the resource says"))
    assert "roles/echo/tasks/main.yml" in task[0]
    assert task[1] == "Changed"
    width = ui.page.evaluate(
        "document.querySelector('#run-tasks i.changed').getBoundingClientRect().width"
    )
    assert width > 0
    lines = ui.page.text("#run-changes").splitlines()
    assert [line.strip() for line in lines[1:]] == [
        '- data.text: "hello 1"',
        '+ data.text: "hello 2"',
    ]
    assert any("PATCH" in row[0] or "PUT" in row[0] for row in ui.page.rows("#run-requests"))
    assert "TASK [echo : Say what the resource says]" in ui.page.text("#run-output")
    ui.picture("run-light")
    ui.page.emulate(dark=True)
    ui.picture("run-dark")


def test_failures_loops_queue_and_why_are_shown(ui: Ui) -> None:
    """A failing resource, the Event of a loop, delayed runs, and the objects of a resource."""
    ui.kubectl.apply(echo("broken", refuse="no text today"), echo("busy", sayThis="1"))
    ui.open("failures")
    rows = eventually(
        lambda: [row for row in ui.page.rows("#failures") if row[0] == "echo/broken"],
        details=ui.operator.log,
    )
    assert "no text today" in rows[0][5]

    ui.page.click("nav a", "Loops")
    ui.kubectl.apply(loop_event(ui.kubectl, "busy"))
    # Events are read again when a resource changes.
    ui.kubectl("annotate", KIND, "busy", "example.com/note=1")
    rows = eventually(lambda: ui.page.rows("#loops"))
    assert [(row[0], row[2], row[4]) for row in rows] == [("echo/busy", "Looping", "4")]
    assert "ConfigMap data.text" in rows[0][6]

    ui.page.click("nav a", "Queue")
    rows = eventually(
        lambda: [row for row in ui.page.rows("#queue") if row[0] == "echo/busy"],
        lambda found: found and found[0][2] == "Delayed",
    )
    assert rows[0][4].startswith("in ")

    ui.page.click("#queue a", "echo/busy")
    ui.page.wait_for_text("Delayed because of period", "#why-next")
    assert ["ConfigMap", ui.kubectl.namespace, "busy"] in ui.page.rows("#why-objects")
    assert ui.page.rows("#why-runs")[-1][5] == "spec: created"
    assert "Looping" in ui.page.text("#why-events")
    ui.picture("why-light")


def test_text_of_resources_is_never_markup(ui: Ui) -> None:
    """A message and a field with elements of HTML are shown as they are written."""
    ui.kubectl.apply(echo("hostile", refuse=HOSTILE))
    ui.open("failures")
    rows = eventually(
        lambda: [row for row in ui.page.rows("#failures") if row[0] == "echo/hostile"],
        details=ui.operator.log,
    )
    assert HOSTILE in rows[0][5]
    ui.page.click("#failures tr[data-key$='/hostile'] a", "echo/hostile")
    ui.page.wait_for_text(HOSTILE, "#why-runs")
    ui.page.click("#why-runs a.mono")
    ui.page.wait_for_text(HOSTILE, "#run-output")
    ui.page.wait_for_text(HOSTILE, "#run-facts")
    assert ui.page.evaluate("window.pwned === undefined")
    assert ui.page.evaluate("document.querySelectorAll('main img, main script').length") == 0


def test_the_page_is_used_with_the_keyboard_alone(ui: Ui) -> None:
    """Skip link, views, and the link of a run, which keeps the focus while the page changes."""
    ui.kubectl.apply(echo("keys", sayThis="1"))
    ui.open("resources")
    eventually(lambda: "echo/keys" in ui.page.text("#resources"))
    ui.page.tab_to("Skip to content")
    ui.page.press("Enter")
    assert ui.page.evaluate("document.activeElement.id") == "main"
    ui.page.tab_to("Filter")
    ui.page.press("Tab", shift=True)
    ui.page.press("Tab", shift=True)
    assert ui.page.evaluate("document.activeElement.closest('nav') !== null")
    ui.open("resources")
    ui.page.tab_to("Runs")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert ui.page.evaluate(outline) == "solid"
    ui.page.press("Enter")
    eventually(lambda: ui.page.evaluate("document.activeElement.tagName"), "H1".__eq__)
    assert ui.page.evaluate("window.focused()") == "Runs"
    current = "Array.from(document.querySelectorAll('[aria-current=page]'), e => e.innerText)"
    assert ui.page.evaluate(current) == ["Runs"]
    run = eventually(lambda: ui.last_run("keys"), details=ui.operator.log)
    ui.page.tab_to(run[:8])
    ui.kubectl.merge(KIND, "keys", {"spec": {"sayThis": "2"}})
    eventually(lambda: ui.last_run("keys"), lambda found: found != run)
    assert ui.page.evaluate("window.focused()") == run[:8]
    ui.page.press("Enter")
    ui.page.wait_for_text(f"Run {run}: succeeded", "#title-run")


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast_and_a_narrow_window_needs_no_scrolling(ui: Ui, *, dark: bool) -> None:
    """In both colour schemes: 4.5 to 1, as WCAG 2 AA asks, and 320 pixels are enough."""
    ui.kubectl.apply(echo("seen", sayThis="1"))
    ui.open("resources")
    eventually(lambda: "echo/seen" in ui.page.text("#resources"))
    ui.page.emulate(dark=dark)
    for view in ("Resources", "Queue", "Runs", "Loops", "Failures", "Why"):
        ui.page.click("nav a", view)
        eventually(lambda view=view: view in ui.page.text("section:not([hidden]) h1"))  # type: ignore[misc]
        ratios = ui.page.evaluate("window.contrasts()")
        assert len(ratios) > 5
        assert [each for each in ratios if each[1] < 4.5] == []
        ui.page.emulate(dark=dark, width=320, height=640)
        for selector in ("html", "section:not([hidden]) .scroll"):
            found = f"document.querySelector('{selector}')?.scrollWidth ?? 0"
            assert ui.page.evaluate(found) <= 320, selector
        ui.page.emulate(dark=dark)
    background = "getComputedStyle(document.body).backgroundColor"
    assert ui.page.evaluate(background) == ("rgb(17, 21, 27)" if dark else "rgb(255, 255, 255)")


def test_equal_failures_are_one_row_and_reports_break_no_words(ui: Ui, tmp_path: Path) -> None:
    """The number of failures is in the row; results of tasks are whole words at each width."""
    ui.kubectl.apply(echo("again", refuse="no"))
    ui.open("runs")
    row = "Array.from(document.querySelectorAll('#runs tbody tr'), row => row.innerText)"
    rows = eventually(
        lambda: [each for each in ui.page.evaluate(row) if "echo/again" in each],
        lambda found: found and "(x" in found[-1],
    )
    assert len(rows) <= 2, "at most one that runs, and the failures"
    report = tmp_path / "report.html"
    command = [str(OPERATOR_RUNNER), "runs", "show", "echo/again", f"--html={report}"]
    cluster = cast("list[str]", ui.process.args)[-3:]
    subprocess.run([*command, *cluster], check=True, timeout=120)
    ui.page.open(report.as_uri())
    for width in (400, 800, 1280):
        ui.page.emulate(width=width)
        assert ui.page.evaluate("document.documentElement.scrollWidth") <= width
        assert ui.page.evaluate(BROKEN_WORDS) == []


def test_assistive_technology_gets_names_landmarks_and_tables(ui: Ui) -> None:
    """The accessibility tree of the browser: what screen readers read."""
    ui.kubectl.apply(echo("read", sayThis="1"))
    ui.open("resources")
    eventually(lambda: "echo/read" in ui.page.text("#resources"))
    for view in ("Resources", "Runs", "Why"):
        ui.page.click("nav a", view)
        eventually(lambda view=view: view in ui.page.text("section:not([hidden]) h1"))  # type: ignore[misc]
        nodes = [
            (each["role"]["value"], str(each.get("name", {}).get("value", "")))
            for each in ui.page.accessibility_tree()
        ]
        roles = {role for role, _ in nodes}
        assert {"banner", "navigation", "main", "heading", "status"} <= roles
        named = {"link", "searchbox", "textbox", "combobox", "table", "columnheader", "region"}
        assert [each for each in nodes if each[0] in named and not each[1].strip()] == []
        assert ("navigation", "Views") in nodes
    level = "document.querySelectorAll('section:not([hidden]) h1').length"
    assert ui.page.evaluate(level) == 1
    ui.page.click("nav a", "Resources")
    header = eventually(
        lambda: {
            str(each["name"]["value"])
            for each in ui.page.accessibility_tree()
            if each["role"]["value"] == "rowheader"
        }
    )
    assert "echo/read" in header


def test_lost_connections_are_reported_and_restored(ui: Ui) -> None:
    """First the operator goes and returns, then the server of the page hangs and continues."""
    ui.kubectl.apply(echo("lost", sayThis="1"))
    ui.open("resources")
    ui.page.evaluate("window.mark = 'same page'")
    eventually(lambda: "echo/lost" in ui.page.text("#resources"))
    ui.operator.terminate()
    ui.page.wait_for_text("No operator answers", "#notice")
    ui.kubectl.apply(echo("later", sayThis="1"))
    eventually(
        lambda: {row[0]: row[3] for row in ui.page.rows("#resources")}.get("echo/later"),
        lambda ready: ready == "Unhandled",
    )
    ui.operator.start()
    eventually(lambda: ui.page.text("#connection"), "Live".__eq__)
    eventually(
        lambda: {row[0]: row[3] for row in ui.page.rows("#resources")}.get("echo/later"),
        lambda ready: ready == "Succeeded",
        details=ui.operator.log,
    )
    os.kill(ui.process.pid, signal.SIGSTOP)
    ui.page.wait_for_text("Reconnecting", "#connection")
    assert "is not current" in ui.page.text("#notice")
    os.kill(ui.process.pid, signal.SIGCONT)
    eventually(lambda: ui.page.text("#connection"), "Live".__eq__)
    # The server may have lost the operator too, until it asks it again.
    eventually(lambda: ui.page.text("#notice"), "".__eq__)
    assert ui.page.evaluate("window.mark") == "same page"


def test_the_page_has_the_resources_of_edited_selectors(
    operator: Operator, kubectl: Kubectl, control_plane: Path
) -> None:
    """After a reload of watches.yaml: those that it selects now, and no others."""
    role = operator.project / "roles/nothing/tasks/main.yml"
    role.parent.mkdir(parents=True)
    role.write_text("- {name: Nothing, ansible.builtin.debug: {msg: nothing}}\n")
    watches = operator.project / "watches.yaml"

    def select(said: str) -> None:
        watches.write_text(
            "[{version: v1, group: '', kind: ConfigMap, role: nothing, "
            f"selector: {{matchLabels: {{said: '{said}'}}}}}}]\n"
        )

    for said in ("yes", "no"):
        metadata = {"name": said, "labels": {"said": said}}
        kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    select("yes")
    operator.start("--reload")
    with served(control_plane, kubectl.namespace, operator.scratch) as (_, url):
        eventually(lambda: listed(url), lambda found: found == ["configmap/yes"])
        select("no")
        eventually(
            lambda: listed(url), lambda found: found == ["configmap/no"], details=operator.log
        )
