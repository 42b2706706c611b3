// One run: summary, timelines of tasks and requests, changed fields, output and log.

import { byId, head, pair, setText, showRows } from "./dom.js";
import { outcome, timelineCell } from "./views.js";

export function showRun(run) {
  const report = run.report ?? { facts: [], tasks: [], requests: [], changes: [], output: "", log: [], dropped: {} };
  setText(byId("title-run"), `Run ${run.id}${run.outcome ? `: ${run.outcome}` : ""}`);
  setText(byId("run-message"), run.missing ? "No operator that answers keeps this run." : "");
  byId("run-facts").hidden = report.facts.length === 0;
  showRows(byId("run-facts"), report.facts, ([name]) => name, ([name, value]) => [head(name), value]);
  showBars("tasks", report.tasks);
  showBars("requests", report.requests);
  showLines("changes", report.changes);
  showText("output", report.output.trim());
  showText("log", report.log.join("\n"));
  const dropped = Object.entries(report.dropped).map(([name, count]) => `${count} ${name}`);
  setText(byId("run-dropped"), dropped.length ? `Not recorded, because a record is limited: ${dropped.join(", ")}.` : "");
}

function showBars(part, bars) {
  byId(`run-${part}-part`).hidden = bars.length === 0;
  const numbered = bars.map((each, index) => ({ ...each, index }));
  showRows(byId(`run-${part}`), numbered, (each) => String(each.index), (each) => [
    head(pair(each.label, each.detail)), outcome(each.status || "ok"), timelineCell(each),
  ]);
}

function showText(part, text) {
  byId(`run-${part}-part`).hidden = text === "";
  setText(byId(`run-${part}`), text);
}

function showLines(part, lines) {
  byId(`run-${part}-part`).hidden = lines.length === 0;
  const text = lines.join("\n");
  const target = byId(`run-${part}`);
  if (target.textContent === text) return;
  const marks = { "-": "minus", "+": "plus" };
  target.replaceChildren(...lines.flatMap((line, index) => {
    const node = document.createElement("span");
    node.className = marks[line.trim().charAt(0)] ?? "";
    node.textContent = line;
    return index ? ["\n", node] : [node];
  }));
}
