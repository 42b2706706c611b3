// Rows and cells that stay the same elements while their content changes, so that focus and
// selection are kept. All content is set as text, never as HTML.

import { ago, until } from "./text.js";

export const byId = (id) => document.getElementById(id);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Cells: content is a text, or one of the objects that these functions return.
export const link = (text, href, style = "") => ({ type: "link", text, href, style });
export const age = (time) => (time ? { type: "time", time, of: "ago" } : "-");
export const ageLink = (time, href) => ({ type: "ageLink", time, of: "ago", href });
export const due = (time) => (time ? { type: "time", time, of: "until" } : "-");
export const state = (text, tone) => ({ type: "state", text, tone });
export const pair = (text, detail) => ({ type: "pair", text, detail });
export const bar = (content) => ({ type: "bar", ...content });
export const head = (content) => ({ head: true, content });
export const styled = (content, style) => ({ style, content });

const MAKERS = {
  text: () => document.createElement("span"),
  pair: () => {
    const found = document.createElement("div");
    const detail = Object.assign(document.createElement("div"), { className: "detail" });
    found.append(document.createElement("div"), detail);
    return found;
  },
  link: () => document.createElement("a"),
  time: () => document.createElement("time"),
  ageLink: () => {
    const found = document.createElement("a");
    found.append(document.createElement("time"));
    return found;
  },
  state: () => Object.assign(document.createElement("span"), { className: "state" }),
  bar: () => {
    const found = document.createElement("div");
    const track = Object.assign(document.createElement("div"), { className: "track" });
    track.append(document.createElement("i"));
    found.append(track, Object.assign(document.createElement("span"), { className: "offset" }));
    return found;
  },
};

const FILLERS = {
  text: (node, content) => setText(node, content.text),
  pair: (node, content) => {
    setText(node.firstChild, content.text);
    setText(node.lastChild, content.detail);
  },
  link: (node, content) => {
    setText(node, content.text);
    if (node.getAttribute("href") !== content.href) node.setAttribute("href", content.href);
    node.className = content.style;
  },
  ageLink: (node, content) => {
    if (node.getAttribute("href") !== content.href) node.setAttribute("href", content.href);
    FILLERS.time(node.firstChild, content);
  },
  time: (node, content) => {
    node.dateTime = content.time;
    node.dataset.of = content.of;
    node.title = new Date(content.time).toLocaleString();
    refresh(node);
  },
  state: (node, content) => {
    setText(node, content.text);
    node.dataset.tone = content.tone;
  },
  bar: (node, content) => {
    const line = node.querySelector("i");
    line.className = content.status;
    line.style.left = `${content.left}%`;
    line.style.width = `${content.width}%`;
    setText(node.querySelector(".offset"), content.title);
    node.lastChild.classList.toggle("unseen", content.isQuiet === true);
  },
};

function refresh(node) {
  setText(node, node.dataset.of === "until" ? until(node.dateTime) : ago(node.dateTime));
}

// Ages grow although nothing is received.
setInterval(() => {
  if (!document.hidden) document.querySelectorAll("section:not([hidden]) time").forEach(refresh);
}, 1000);

function fillCell(cell, content) {
  const value = typeof content === "object" ? content : { type: "text", text: content || "-" };
  if (cell.dataset.type !== value.type) {
    cell.dataset.type = value.type;
    cell.replaceChildren(MAKERS[value.type]());
  }
  FILLERS[value.type](cell.firstChild, value);
}

function makeRow(key, cells) {
  const row = document.createElement("tr");
  row.dataset.key = key;
  for (const cell of cells) {
    const node = document.createElement(cell.head ? "th" : "td");
    if (cell.head) node.scope = "row";
    row.append(node);
  }
  return row;
}

// Shows items as rows; `key` gives what identifies an item, `cells` the contents of its cells.
export function showRows(table, items, key, cells) {
  const body = table.tBodies[0];
  const known = new Map();
  // Of equal keys, the first row is used again.
  for (const row of Array.from(body.rows)) {
    if (known.has(row.dataset.key)) row.remove();
    else known.set(row.dataset.key, row);
  }
  const isFirst = table.dataset.filled === undefined;
  table.dataset.filled = "";
  if (table.tHead) table.tHead.hidden = items.length === 0;
  let place = body.firstElementChild;
  for (const item of items) {
    const contents = cells(item);
    let row = known.get(key(item));
    if (row === undefined) {
      row = makeRow(key(item), contents);
      if (!isFirst) row.dataset.new = "";
    }
    known.delete(key(item));
    contents.forEach((each, index) => {
      const cell = row.cells[index];
      if (each?.style && each.content !== undefined) cell.className = each.style;
      cell.dataset.label = table.tHead?.rows[0].cells[index]?.textContent ?? "";
      fillCell(cell, each?.content !== undefined ? each.content : each);
    });
    // A row that is moved would lose the focus, so the others are moved around it.
    if (row === place) {
      place = place.nextElementSibling;
    } else if (row.contains(document.activeElement)) {
      while (place !== row) {
        const next = place.nextElementSibling;
        body.append(place);
        place = next;
      }
      place = row.nextElementSibling;
    } else {
      body.insertBefore(row, place);
    }
  }
  for (const row of known.values()) {
    if (row.contains(document.activeElement)) keepFocusNear(row, table);
    row.remove();
  }
}

function keepFocusNear(row, table) {
  const other = row.nextElementSibling ?? row.previousElementSibling;
  (other?.querySelector("a") ?? table.closest("[tabindex]") ?? byId("main")).focus();
}
