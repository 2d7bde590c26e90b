// The page: views behind tabs, the address of each, keys, the token and the namespace.

import { get, session } from "./api.js";
import { makeAsk } from "./ask.js";
import { make, say, sayError } from "./dom.js";
import { makeGraph } from "./graph.js";
import { makeLearning } from "./learning.js";
import { goTo, linkTo, readPlace } from "./place.js";
import { makeRegions } from "./regions.js";
import { makeTurns } from "./turns.js";

const MAKERS = { ask: makeAsk, turns: makeTurns, graph: makeGraph, learning: makeLearning, regions: makeRegions };
const tabs = [...document.querySelectorAll('[role="tab"]')];
const field = document.getElementById("namespace");
const tokenDialog = document.getElementById("token-dialog");
const tokenField = document.getElementById("token");
const helpDialog = document.getElementById("help-dialog");
const keysBox = document.getElementById("keys");
const views = {};
const last = {}; // the last address of each view
let current = null;
let known = new Set();

for (const [name, makeView] of Object.entries(MAKERS)) views[name] = makeView(document.getElementById(`view-${name}`));

/** Show what the address says; another namespace begins anew. */
async function route() {
  const place = readPlace();
  if (place.namespace && place.namespace !== session.namespace) {
    session.setNamespace(place.namespace);
    await restart();
    return;
  }
  const wanted = Object.hasOwn(views, place.view) ? place.view : "ask";
  showTab(wanted);
  document.getElementById("home").href = linkTo("ask");
  try {
    await views[wanted].show(place.argument, place.options);
  } catch (error) {
    for (const waiting of document.querySelectorAll("main .skeleton")) waiting.remove();
    sayError(error);
  }
}

function showTab(wanted) {
  if (current && current !== wanted) {
    views[current].hide();
    say("");
  }
  current = wanted;
  for (const tab of tabs) {
    const selected = tab.dataset.view === wanted;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    document.getElementById(`view-${tab.dataset.view}`).hidden = !selected;
  }
}

function openTab(name) {
  if (current) last[current] = location.hash;
  if (name !== current) location.hash = last[name] ?? linkTo(name);
}

for (const [at, tab] of tabs.entries()) {
  tab.addEventListener("click", () => openTab(tab.dataset.view));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = event.key === "Home" ? tabs[0] : event.key === "End" ? tabs.at(-1) : step && tabs.at((at + step) % tabs.length);
    if (!next) return;
    event.preventDefault();
    next.focus();
    openTab(next.dataset.view);
  });
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});

field.addEventListener("change", () => {
  const name = field.value.trim() || [...known][0] || "default";
  if (name === session.namespace) return;
  session.setNamespace(name);
  history.pushState(null, "", linkTo(current ?? "ask"));
  restart();
});

for (const dialog of document.querySelectorAll("dialog")) {
  for (const button of dialog.querySelectorAll("[data-close]")) button.addEventListener("click", () => dialog.close("cancel"));
}

function askForToken(reason = "") {
  const note = document.getElementById("token-error");
  note.textContent = reason;
  if (!tokenDialog.open) tokenDialog.showModal();
  tokenField.select();
}

document.getElementById("token-button").addEventListener("click", () => askForToken());
tokenDialog.addEventListener("close", () => {
  if (tokenDialog.returnValue !== "use") return;
  tokenDialog.returnValue = "";
  session.setToken(tokenField.value.trim());
  restart();
});

document.getElementById("help-button").addEventListener("click", () => helpDialog.showModal());
keysBox.checked = localStorage.getItem("crabpath-keys") !== "off";
keysBox.addEventListener("change", () => localStorage.setItem("crabpath-keys", keysBox.checked ? "on" : "off"));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !keysBox.checked) return;
  if (event.target.closest("input, textarea, select, dialog, [role=tab]") || document.querySelector("dialog[open]")) return;
  if (event.key === "?") helpDialog.showModal();
  else if (event.key === "/") {
    if (current !== "ask") goTo("ask");
    showTab("ask"); // at once: the next letters belong to the field
    views.ask.focus();
  } else if (event.key === "Enter" || !views[current]?.press?.(event.key)) return;
  event.preventDefault();
});

// A file that is dropped beside the place for it does not take the place of the page.
for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());

/** Begin anew with another token or namespace. */
async function restart() {
  if (current) views[current].hide();
  for (const view of Object.values(views)) view.reset();
  for (const name of Object.keys(last)) delete last[name];
  let [note, named] = ["", ""];
  try {
    const wanted = readPlace().namespace;
    if (wanted) session.setNamespace(wanted);
    const granted = await session.open();
    field.value = granted.namespace;
    say("");
    if (!wanted) history.replaceState(null, "", linkTo("ask"));
    named = granted.namespace;
    note = await listNamespaces(granted);
  } catch (error) {
    if (error.status === 401) askForToken(sessionStorage.getItem("crabpath-token") ? error.message : "");
    sayError(error);
    return;
  }
  await route();
  const isSame = session.namespace === named; // else another one was chosen meanwhile
  if (note && isSame && !document.getElementById("status").textContent) say(note);
}

/** Offer the namespaces that exist; returns a remark on one that is new. */
async function listNamespaces(granted) {
  known = new Set(granted.namespaces.filter((name) => name !== "*"));
  const found = session.may("read") ? (await get("namespaces", { limit: 1000 })).namespaces : [];
  for (const one of found) known.add(one.name);
  document.getElementById("namespaces").replaceChildren(...[...known].map((value) => make("option", { value })));
  return known.size && !known.has(granted.namespace) ? `Nobody has asked anything in the namespace “${granted.namespace}” yet.` : "";
}

addEventListener("hashchange", route);
addEventListener("focus", () => current && views[current].refresh?.());
restart();
