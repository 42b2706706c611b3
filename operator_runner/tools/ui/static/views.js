// The lists: each function shows the items of a view in its table.

import { age, ageLink, bar, byId, due, head, link, setText, showRows, state, styled } from "./dom.js";
import { capitalized, duration, plural } from "./text.js";

const TONES = {
  Succeeded: "good", Failed: "bad", Running: "busy", Waiting: "warn", Suspended: "warn",
  Looping: "warn", Drifted: "warn", "Not idempotent": "warn", Queued: "busy", Unreachable: "bad",
  Changed: "good",
};

export const whyHref = (key) => `#/why/${encodeURIComponent(key)}`;
export const runHref = (id) => `#/runs/${encodeURIComponent(id)}`;
export const outcome = (text, count = 1) => state(
  `${capitalized(text ?? "-")}${count > 1 ? ` (x${count})` : ""}`, TONES[capitalized(text ?? "")] ?? "");
const name = (item) => head(link(item.label, whyHref(item.key)));
const runLink = (id) => (id ? link(id.slice(0, 8), runHref(id), "mono") : "-");
const wide = (content) => styled(content || "-", "wide");
const tight = (content) => styled(content || "-", "nowrap");
const namespace = (item) => styled(item.namespace ?? "-", "namespace");
// Equal failures in a row are one item.
const runsOf = (items) => items.reduce((sum, item) => sum + (item.count ?? 1), 0);
const isFailing = (item) => item.failingSince !== undefined;

function nextRun(item) {
  if (item.queuePosition) return `queued (${item.queuePosition})`;
  if (item.nextRun) return due(item.nextRun);
  return item.retries ? "retry" : "-";
}

export function showResources(items, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = items.filter((item) => {
    const text = [item.label, item.namespace, item.state, item.why, item.cause].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const count = plural(items.length, "resource");
  setText(byId("caption-resources"), words.length ? `${shown.length} of ${count}` : count);
  showRows(byId("resources"), shown, (item) => item.key, (item) => [
    name(item), namespace(item), item.ready ?? "-", outcome(item.state),
    tight(lastRun(item)),
    tight(nextRun(item)), tight(age(item.failingSince)), wide(item.why),
  ]);
}

function lastRun(item) {
  if (!item.runID) return age(item.lastRun);
  return item.lastRun ? ageLink(item.lastRun, runHref(item.runID)) : runLink(item.runID);
}

export function showFailures(items) {
  const shown = items.filter(isFailing).sort((a, b) => (a.failingSince < b.failingSince ? -1 : 1));
  setText(byId("caption-failures"), shown.length ? `${plural(shown.length, "resource")}, longest failure first` : "No resource fails");
  showRows(byId("failures"), shown, (item) => item.key, (item) => [
    name(item), namespace(item), tight(age(item.failingSince)), tight(nextRun(item)),
    tight(lastRun(item)), wide(item.message),
  ]);
  return shown.length;
}

export function showQueue(items) {
  const count = (word) => items.filter((item) => item.state === word).length;
  setText(byId("caption-queue"), items.length
    ? `${count("Running")} running, ${count("Queued")} waiting, ${count("Delayed")} delayed`
    : "No resource runs, waits or is delayed");
  showRows(byId("queue"), items, (item) => item.key, (item) => [
    name(item), namespace(item), outcome(item.state), String(item.position ?? "-"),
    tight(item.due ? due(item.due) : age(item.since)), String(item.failures ?? "-"), wide(item.cause),
  ]);
}

export function showSchedules(items) {
  setText(byId("caption-schedules"), items.length ? plural(items.length, "schedule") : "No resource has a schedule");
  showRows(byId("schedules"), items, (item) => item.key, (item) => [
    name(item), namespace(item), tight(age(item.last)), tight(due(item.next)), wide(item.error),
  ]);
}

export function showRuns(items) {
  setText(byId("caption-runs"), items.length ? `${plural(runsOf(items), "run")}, newest first` : "No runs yet");
  showRows(byId("runs"), items, (item) => item.id, (item) => [
    head(runLink(item.id)), link(item.label, whyHref(item.key)), namespace(item), outcome(item.outcome, item.count),
    tight(age(item.started)), tight(duration(item.seconds)), timelineCell({ ...item.bar, isQuiet: true }), wide(item.cause),
  ]);
}

export const timelineCell = (content) => styled(bar(content), "track-cell");

export function showLoops(items) {
  setText(byId("caption-loops"), items.length
    ? `${plural(items.length, "resource")} whose runs trigger themselves or change the same fields each time; from Events of the last hour`
    : "No resource is in a loop");
  showRows(byId("loops"), items, (item) => `${item.key} ${item.reason} ${item.cause} ${item.message}`, (item) => [
    name(item), namespace(item), outcome(item.outcome), tight(age(item.ended)), String(item.count ?? 1),
    tight(due(item.due)), wide(item.message || item.cause),
  ]);
}

// Without a key, nothing is known yet.
export function showWhy(found) {
  const none = (text) => (found.key ? text : "");
  byId("why-parts").hidden = !found.key;
  setText(byId("why-next"), next(found));
  setText(byId("caption-why-runs"), found.runs.length ? `${plural(runsOf(found.runs), "run")}, newest first` : none("No runs are kept"));
  showRows(byId("why-runs"), found.runs, (item) => item.id, (item) => [
    head(runLink(item.id)), outcome(item.outcome, item.count), tight(age(item.started)), tight(duration(item.seconds)),
    timelineCell({ ...item.bar, isQuiet: true }), wide(item.cause), wide(item.message),
  ]);
  setText(byId("caption-why-events"), found.events.length ? plural(found.events.length, "Event") : none("No other Events"));
  showRows(byId("why-events"), found.events, (item) => `${item.ended} ${item.outcome} ${item.runID} ${item.message}`, (item) => [
    head(age(item.ended)), outcome(item.outcome), String(item.count), wide(item.cause), wide(item.message),
  ]);
  setText(byId("caption-why-objects"), found.objects.length
    ? `${plural(found.objects.length, "object")} that its runs have created or read` : none("No objects are known"));
  showRows(byId("why-objects"), found.objects, (item) => item.key, (item) => [
    head(item.kind), item.namespace ?? "-", item.name,
  ]);
}

function next(found) {
  if (!found.key) return "Choose a resource to see why it ran and what is next.";
  if (found.suspended && found.deleting) return "Suspended while being deleted: no clean-up runs until it is resumed.";
  if (found.suspended) return "Suspended: no run starts until it is resumed.";
  const [entry] = found.queue;
  const [schedule] = found.schedules;
  const parts = [];
  if (entry) parts.push(`${entry.state} because of ${entry.cause || "an unknown cause"}${entry.due ? `, due at ${new Date(entry.due).toLocaleTimeString()}` : ""}.`);
  if (schedule?.next) parts.push(`Next tick of its schedule: ${new Date(schedule.next).toLocaleString()}.`);
  if (schedule?.error) parts.push(`Invalid schedule: ${schedule.error}.`);
  if (found.exclusion) parts.push(`No runs: ${found.exclusion}.`);
  return parts.join(" ") || "No run is queued or delayed.";
}
