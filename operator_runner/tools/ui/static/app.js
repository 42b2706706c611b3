// Shows the view that the address names, and what is received.

import { byId, setText } from "./dom.js";
import { follow, read } from "./live.js";
import { showRun } from "./run.js";
import { capitalized } from "./text.js";
import { showFailures, showLoops, showQueue, showResources, showRuns, showSchedules, showWhy, whyHref } from "./views.js";

const received = { state: null, resources: [], queue: [], schedules: [], runs: [], loops: [] };
const NOTHING = { runs: [], events: [], objects: [], queue: [], schedules: [] };
const ANNOUNCE_MS = 5000;
const REREAD_MS = 2000;
let isConnected = null;
let shown = { view: "", argument: "" };

const SHOW = {
  resources: () => showResources(received.resources, byId("filter").value),
  queue: () => { showQueue(received.queue); showSchedules(received.schedules); },
  runs: () => showRuns(received.runs),
  loops: () => showLoops(received.loops),
  failures: () => showFailures(received.resources),
  run: () => reread(),
  why: () => { showChoices(); reread(); },
};

function route() {
  const [, view, argument] = location.hash.match(/^#\/([a-z]+)(?:\/(.*))?$/) ?? [null, "resources", ""];
  const isRun = view === "runs" && argument;
  if (!(view in SHOW)) return { view: "resources", argument: "" };
  return { view: isRun ? "run" : view, argument: decodeURIComponent(argument ?? "") };
}

function navigate() {
  // The link to the content is not a view.
  if (location.hash === "#main") return;
  const before = shown.view;
  shown = route();
  document.querySelectorAll("section[data-view]").forEach((each) => { each.hidden = each.dataset.view !== shown.view; });
  const current = `#/${shown.view === "run" ? "runs" : shown.view}`;
  document.querySelectorAll("nav a").forEach((each) => {
    if (each.getAttribute("href") === current) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  });
  details.clear();
  // What another run or resource had is not shown below the new heading.
  if (shown.view === "run") showRun({ id: shown.argument });
  if (shown.view === "why") showWhy(NOTHING);
  SHOW[shown.view]();
  const title = document.querySelector("section:not([hidden]) h1");
  document.title = `${title.textContent} - operator-runner`;
  // A screen reader reads the heading of the new view. A choice within a view keeps the focus.
  if (before && before !== shown.view) { title.focus({ preventScroll: true }); window.scrollTo(0, 0); }
}

// What is read when a user opens a run or a resource, again when it may have changed.
const details = {
  signature: "", isReading: false,
  clear() { this.signature = ""; },
};

async function reread() {
  const { view, argument } = shown;
  if (details.isReading || !["run", "why"].includes(view)) return;
  if (view === "why" && !argument) { showWhy(NOTHING); return; }
  const signature = JSON.stringify([view, argument, received.state?.operators, related(view, argument)]);
  if (signature === details.signature) return;
  details.isReading = true;
  try {
    const found = await read(`${view === "run" ? "runs" : "resources"}/${encodeURIComponent(argument)}`);
    if (shown.view === view && shown.argument === argument) {
      if (view === "run") showRun(found); else showWhy(found);
      document.title = `${document.querySelector("section:not([hidden]) h1").textContent} - operator-runner`;
      details.signature = found.outcome === "running" ? "" : signature;
    }
  } catch (error) {
    if (shown.view === view) setText(byId(view === "run" ? "run-message" : "why-next"), `Cannot be read: ${error.message}`);
  } finally {
    details.isReading = false;
    if (shown.view !== view || shown.argument !== argument) reread();
  }
}

function related(view, argument) {
  if (view === "run") return received.runs.filter((each) => each.id === argument).map((each) => each.outcome);
  const about = (each) => each.key === argument;
  return [received.runs.filter(about).map((each) => [each.id, each.outcome]), received.queue.filter(about), received.loops.filter(about)];
}

function showChoices() {
  const select = byId("chosen");
  const keys = received.resources.map((each) => each.key);
  if (shown.argument && !keys.includes(shown.argument)) keys.push(shown.argument);
  const wanted = ["", ...keys];
  const known = Array.from(select.options, (each) => each.value);
  if (wanted.join("\n") !== known.join("\n")) {
    select.replaceChildren(...wanted.map((key) => new Option(key ? choice(key) : "Choose a resource", key)));
  }
  select.value = shown.argument;
}

function choice(key) {
  const [kind, namespace, name] = key.split("/");
  return namespace ? `${kind}/${name} in ${namespace}` : `${kind}/${name}`;
}

function showState() {
  const { state } = received;
  const connection = byId("connection");
  const [name, text] = status(state);
  connection.dataset.state = name;
  setText(connection, text);
  const lines = [];
  if (isConnected === false) lines.push("The connection to operator-runner ui is lost, so this page is not current. If the program has ended, start it again and open the URL that it prints.");
  else if (state?.fault) lines.push(`The cluster does not answer: ${state.fault}`);
  else if (state?.reason) lines.push(`No operator answers: ${state.reason}. Without one, the page shows what the cluster has: conditions, and Events of the last hour.`);
  for (const each of state?.warnings ?? []) lines.push(`Warning: ${each}`);
  byId("notice").hidden = lines.length === 0;
  setText(byId("notice"), lines.join(" "));
  if (state) setText(byId("scope"), state.namespace === null ? "all namespaces" : `namespace ${state.namespace}`);
  document.body.toggleAttribute("data-one-namespace", typeof state?.namespace === "string");
}

function status(state) {
  if (isConnected === false) return ["lost", "Reconnecting"];
  if (!state) return ["connecting", "Connecting"];
  if (state.fault) return ["lost", "Cluster does not answer"];
  return state.operators.length ? ["live", "Live"] : ["partial", "Live, without an operator"];
}

function showCounts() {
  const counts = {
    resources: received.resources.length, queue: received.queue.filter((each) => each.state !== "Delayed").length, loops: received.loops.length,
    failures: received.resources.filter((each) => each.failingSince !== undefined).length,
  };
  for (const [name, count] of Object.entries(counts)) {
    setText(document.querySelector(`[data-count="${name}"]`), count ? String(count) : "");
  }
}

// Only resources that begin or cease to fail are announced, those of some seconds together.
const announced = { failing: null, pending: new Map(), timer: 0 };

function announceFailures() {
  const failing = new Map(received.resources.filter((each) => each.failingSince).map((each) => [each.key, each.label]));
  if (announced.failing !== null) {
    for (const [key, name] of failing) if (!announced.failing.has(key)) announced.pending.set(key, `${name} fails`);
    for (const [key, name] of announced.failing) if (!failing.has(key)) announced.pending.set(key, `${name} no longer fails`);
  }
  announced.failing = failing;
  if (announced.pending.size && !announced.timer) {
    announced.timer = setTimeout(() => {
      const texts = [...announced.pending.values()];
      setText(byId("announcements"), texts.length > 3 ? `${texts.length} resources fail or have recovered` : capitalized(texts.join(", ")));
      announced.pending.clear();
      announced.timer = 0;
    }, ANNOUNCE_MS);
  }
}

function onView(name, content) {
  if (name === "state") received.state = content; else received[name] = content.items;
  if (name === "resources") announceFailures();
  showState();
  showCounts();
  SHOW[shown.view]();
}

byId("filter").addEventListener("input", SHOW.resources);
byId("chosen").addEventListener("change", (event) => { location.hash = event.target.value ? whyHref(event.target.value) : "#/why"; });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
window.addEventListener("hashchange", navigate);
navigate();
showState();
follow(onView, (connected) => {
  if (connected === isConnected) return;
  isConnected = connected;
  showState();
});
// A run in progress has new tasks and output.
setInterval(() => { if (!document.hidden) reread(); }, REREAD_MS);
