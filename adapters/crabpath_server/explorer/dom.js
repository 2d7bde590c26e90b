// Elements, tables and numbers. Text of documents only ever becomes text nodes.

import { linkTo } from "./place.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element; attributes that are functions listen to events, null children are left out. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** As make, for drawings. */
export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** A text without the characters that turn others around. */
export const straighten = (text) => String(text).replace(/[\u202a-\u202e\u2066-\u2069]/g, "");

/** A text of others, whose direction stays its own; long ones end after two lines. */
export function makeName(text, attributes = {}) {
  return make("bdi", { class: "name", title: text.length > 80 ? straighten(text) : null, ...attributes }, straighten(text));
}

/** A link to a document in the graph. */
export function makeLink(id, title, attributes = {}) {
  return make("a", { href: linkTo("graph", id), ...attributes }, makeName(title || id));
}

/** A quiet button of an action, with more classes. */
export function makeButton(text, click, { class: more = "", ...attributes } = {}) {
  return make("button", { type: "button", class: `quiet ${more}`.trim(), click: act(click), ...attributes }, text);
}

/** What stands where something is being read. */
export function makeSkeleton(lines = 4) {
  return make("div", { class: "skeleton", "aria-hidden": "true" }, Array.from({ length: lines }, () => make("i")));
}

/**
 * A table with a caption; the cells of rows are texts, numbers or elements.
 * On narrow screens every row becomes a block; the roles keep it a table for screen readers.
 */
export function makeTable(caption, heads, rows, attributes = {}) {
  const makeCell = (cell, place) => {
    const numeric = typeof cell === "number";
    return make("td", { role: "cell", "data-head": heads[place], class: numeric ? "number" : null }, numeric ? formatNumber(cell) : cell);
  };
  if (!rows.length) return make("p", {}, make("strong", {}, caption), make("span", { class: "dim" }, ": none yet"));
  return make(
    "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    make(
      "table", { role: "table", ...attributes },
      make("caption", {}, caption),
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, heads.map((head) => make("th", { role: "columnheader", scope: "col" }, head)))),
      make("tbody", { role: "rowgroup" }, rows.map((row) => make("tr", { role: "row" }, row.map(makeCell)))),
    ),
  );
}

/** A labelled field. */
export function label(text, field) {
  return make("label", {}, make("span", {}, text), " ", field);
}

/** A list to choose from; options are values, or pairs of value and text. */
export function makeSelect(name, options, attributes = {}) {
  return make("select", { name, ...attributes }, options.map((option) => {
    const [value, text] = Array.isArray(option) ? option : [option, option];
    return make("option", { value }, text);
  }));
}

export function formatNumber(value, decimals = 2) {
  if (value == null) return "–";
  return Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(decimals);
}

export function formatSigned(value, decimals = 3) {
  return value == null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(decimals)}`;
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** Seconds since the epoch as the time here; the date only where it is not today. */
export function formatTime(seconds) {
  const time = new Date(seconds * 1000);
  const clock = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return time.toDateString() === new Date().toDateString() ? clock : `${time.toLocaleDateString()} ${clock}`;
}

/** A day as people say it: today, yesterday, on Tuesday, on 3 March. */
export function formatDay(seconds) {
  const time = new Date(seconds * 1000);
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(time).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days <= 0) return "today";
  if (days === 1) return "yesterday";
  return `on ${time.toLocaleDateString("en", days < 7 ? { weekday: "long" } : { day: "numeric", month: "long", year: "numeric" })}`;
}

export function shorten(text, most) {
  const line = String(text).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, Math.max(1, most - 1))}…` : line;
}

/** A text without the title that it begins with. */
export function dropTitle(text, title) {
  const bare = text.trimStart().replace(/^#+\s*/, "");
  return title && bare.startsWith(title) && bare.length > title.length ? bare.slice(title.length).replace(/^[\s.:#—-]+/, "") : text;
}

/** A mark for a tier: a colour, and a pattern for those who do not see it. */
export function makeTier(tier) {
  return tier ? make("span", { class: `tier tier-${tier}` }, tier) : make("span", { class: "dim" }, "none");
}

/** Say something in the status line of the header, which screen readers read aloud. */
export function say(text, isError = false) {
  const line = document.getElementById("status");
  line.textContent = text;
  line.title = text;
  line.classList.toggle("error", isError);
}

export const sayError = (error) => say(error.message, true);

/** Ask before what cannot be undone; true for yes. */
export function confirmAction(text, action) {
  const dialog = document.getElementById("confirm-dialog");
  document.getElementById("confirm-text").textContent = text;
  document.getElementById("confirm-do").textContent = action;
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "do"), { once: true });
  });
}

/** Run an action of a button; its error becomes the status line, and the button waits. */
export function act(action) {
  return async (event) => {
    event.preventDefault();
    const button = event.submitter ?? event.currentTarget;
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    try {
      await action(event);
    } catch (error) {
      sayError(error);
    } finally {
      button.removeAttribute("aria-disabled");
    }
  };
}
