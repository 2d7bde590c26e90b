// The page: views behind tabs, the address of each, the token and the namespace.

import { get, session } from "./api.js";
import { makeAsk } from "./ask.js";
import { make, say } from "./dom.js";
import { makeGraph } from "./graph.js";
import { makeLearning } from "./learning.js";
import { makeRegions } from "./regions.js";
import { makeTurns } from "./turns.js";

const MAKERS = { ask: makeAsk, turns: makeTurns, graph: makeGraph, learning: makeLearning, regions: makeRegions };
const tabs = [...document.querySelectorAll('[role="tab"]')];
const namespace = document.getElementById("namespace");
const tokenDialog = document.getElementById("token-dialog");
const views = {};
let current = null;

for (const [name, makeView] of Object.entries(MAKERS)) views[name] = makeView(document.getElementById(`view-${name}`));

/** Show the view in the address: #view/argument. */
async function route() {
  const [, name, argument] = location.hash.match(/^#(\w+)(?:\/(.*))?$/) ?? [];
  const wanted = Object.hasOwn(views, name) ? name : "ask";
  if (current && current !== wanted) views[current].hide();
  current = wanted;
  for (const tab of tabs) {
    const selected = tab.dataset.view === wanted;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    document.getElementById(`view-${tab.dataset.view}`).hidden = !selected;
  }
  try {
    await views[wanted].show(argument ? decodeURIComponent(argument) : "");
  } catch (error) {
    say(error.message, true);
  }
}

for (const [place, tab] of tabs.entries()) {
  tab.addEventListener("click", () => { location.hash = tab.dataset.view; });
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = event.key === "Home" ? tabs[0] : event.key === "End" ? tabs.at(-1) : step && tabs.at((place + step) % tabs.length);
    if (!next) return;
    event.preventDefault();
    next.focus();
    location.hash = next.dataset.view;
  });
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});

namespace.addEventListener("change", () => {
  session.setNamespace(namespace.value.trim());
  restart();
});

document.getElementById("token-button").addEventListener("click", () => tokenDialog.showModal());
tokenDialog.addEventListener("close", () => {
  if (tokenDialog.returnValue !== "use") return;
  session.setToken(document.getElementById("token").value.trim());
  restart();
});

/** Begin anew with another token or namespace. */
async function restart() {
  if (current) views[current].hide();
  for (const view of Object.values(views)) view.reset();
  try {
    const granted = await session.open();
    namespace.value = granted.namespace;
    say("");
    await listNamespaces(granted);
  } catch (error) {
    say(error.message, true);
    if (error.status === 401 && !tokenDialog.open) tokenDialog.showModal();
    return;
  }
  await route();
}

async function listNamespaces(granted) {
  const names = new Set(granted.namespaces.filter((name) => name !== "*"));
  if (session.may("read")) for (const found of (await get("namespaces")).namespaces) names.add(found.name);
  document.getElementById("namespaces").replaceChildren(...[...names].map((value) => make("option", { value })));
}

addEventListener("hashchange", route);
restart();
