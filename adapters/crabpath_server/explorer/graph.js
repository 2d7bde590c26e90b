// Graph: the canvas, and the edges of the document chosen there, page by page; authority, connections, forgetting.

import { get, makeLatest, post, remove, session } from "./api.js";
import { Canvas } from "./canvas.js";
import { act, confirmAction, count, dropTitle, formatSigned, formatTime, label, make, makeButton, makeLink, makeName, makeSelect, makeSkeleton, makeTable, makeTier, say, sayError, shorten } from "./dom.js";
import { goTo, keepPlace } from "./place.js";

const PAGE = 20;
const WALKED = ["sibling", "link", "linked_by", "mention", "mentioned_by", "shared_term", "similar", "co_used", "inhibits", "taught"];
const TYPED = ["temporal", "same_action", "caused_success", "caused_failure", "irrelevant", "region_transition", "granger_causal"];
const TIERS = ["reflex", "habitual", "dormant", "inhibitory"];
const AUTHORITIES = [["overlay", "overlay: decays as usual"], ["canonical", "canonical: decays at a quarter"], ["constitutional", "constitutional: never decays"]];

export function makeGraph(section) {
  const words = make("input", { type: "search", name: "q", placeholder: "Words of a document or its title", "aria-label": "Search documents", autocomplete: "off" });
  const results = make("ul", { class: "results", "aria-label": "Documents found" });
  const kind = makeSelect("kind", [["", "those that queries follow"], ...WALKED, ...TYPED], { change: turnBack });
  const tier = makeSelect("tier", [["", "any"], ...TIERS], { change: turnBack });
  const direction = makeSelect("direction", [["out", "outgoing"], ["in", "incoming"]], { change: turnBack });
  const least = make("input", { type: "number", name: "min_weight", min: 0, max: 1, step: 0.05, value: 0, change: turnBack });
  const filters = make("form", { class: "line options", "aria-label": "Filters", submit: turnBack },
    label("Edges", direction), label("Kind", kind), label("Tier", tier), label("Weight at least", least));
  const place = make("div", { class: "panel" });
  const canvas = new Canvas((id) => goTo("graph", id), () => {
    clear();
    canvas.clear();
    goTo("graph");
    return begin();
  });
  let page = null;
  let node = "";
  let offset = 0;
  let isFresh = false; // whether the last walk was read since this view was opened
  const latestPage = makeLatest();
  const latestResults = makeLatest();
  const latestTargets = makeLatest();
  const latestHistory = makeLatest();

  async function search() {
    const answer = await latestResults(get("documents", { q: words.value.trim(), limit: 20 }));
    if (!answer) return 0;
    const { documents } = answer;
    results.replaceChildren(...documents.map((found) => make("li", {},
      makeLink(found.id, found.title || shorten(found.text, 60)), " ",
      makeName(shorten(dropTitle(found.text, found.title), 90), { class: "name dim" }))));
    return documents.length;
  }

  function turnBack(event) {
    event.preventDefault();
    offset = 0;
    if (node) read().catch(sayError);
  }

  async function read() {
    keepPlace("graph", node, { kind: kind.value, tier: tier.value, direction: direction.value === "out" ? "" : direction.value, min_weight: Number(least.value) || "", offset: offset || "" });
    const chosen = { kind: kind.value, tier: tier.value, direction: direction.value, min_weight: least.value };
    const found = await latestPage(Promise.all([
      get("graph/neighbors", { node, ...chosen, limit: PAGE, offset }),
      get(`documents/${encodeURIComponent(node)}`).catch(() => null),
    ]));
    if (!found) return;
    page = found[0];
    page.node.title ||= shorten(found[1]?.text ?? "", 60); // a note
    const left = canvas.add(page);
    show(found[1]);
    if (left) say(`${count(left, "document")} of this page are not drawn: the canvas is full. Begin with one of them from the table.`);
  }

  const otherEnd = (edge) => (edge.source === page.node.id ? edge.target : edge.source);

  function clear() {
    latestPage();
    node = "";
    place.replaceChildren();
  }

  /** The last walk on the canvas; without one, documents to choose from. */
  async function begin(id) {
    isFresh = true;
    await canvas.read(id);
    if (!id && canvas.element.hidden && !results.firstChild) await search();
  }

  const nameOf = (found) => found.title || found.id;

  function show(text) {
    const history = make("div", { class: "history" });
    const last = offset + page.edges.length;
    const step = (name, to, possible) => possible && makeButton(name, async () => {
      offset = to;
      await read();
      place.querySelector(".pages button:last-child")?.focus();
    });
    place.replaceChildren(
      make("h2", {}, makeName(nameOf(page.node), { class: "whole" })),
      make("p", { class: "line pages" }, page.edges.length ? `Edges ${offset + 1} to ${last} of ${page.total.toLocaleString("en")}, strongest first` : "No edge passes these filters.",
        step("Stronger", Math.max(0, offset - PAGE), offset > 0), step("More", page.next_offset, page.next_offset != null)),
      make("p", { class: "dim" }, makeName([page.node.id, page.node.source !== page.node.id && (page.node.source || "note"), `authority ${page.node.authority}`].filter(Boolean).join(", "), { class: "whole" })),
      text ? make("details", {}, make("summary", {}, "Text"), make("div", { class: "text", dir: "auto", tabindex: 0 }, text.text)) : "",
      filters,
      history,
      makeTable("Edges", ["Document", "Kind", "Tier", "Weight", "From text", "Do"], page.edges.map((edge) => [
        makeLink(otherEnd(edge), edge.title),
        edge.kind, makeTier(edge.tier), edge.weight, edge.prior, makeActions(edge, history),
      ]), { class: "edges" }),
      session.may("write") ? makeTools() : "",
    );
  }

  function makeActions(edge, history) {
    return make("span", { class: "actions" },
      makeButton("Who moved it", () => showHistory(edge, history)),
      session.may("write") && edge.kind !== "inhibits" && makeButton("Inhibit", () => setEdge(edge, -0.5)),
      session.may("write") && ["inhibits", "taught", ...TYPED].includes(edge.kind) && makeButton("Remove", () => setEdge(edge, 0, edge.kind)),
    );
  }

  async function showHistory(edge, history) {
    const answer = await latestHistory(get("graph/changes", { source: edge.source, target: edge.target, kind: edge.kind }));
    if (!answer) return;
    const { changes } = answer;
    history.replaceChildren(makeTable(
      `Who moved ${edge.kind} to ${edge.title || edge.target}`, ["When", "By", "Before", "After", "Change", "Do"],
      changes.map((change) => [
        formatTime(change.at), makeName(change.user ?? change.feedback_id), change.before, change.after, formatSigned(change.after - change.before),
        session.mayUndo(change) && makeButton("Undo", () => undo(change.feedback_id, edge)),
      ]),
    ));
    history.scrollIntoView({ block: "nearest" });
    say(`${changes.length} changes.`);
  }

  async function undo(id, edge) {
    const receipt = await post("undo", { feedback_id: id });
    canvas.remove(edge);
    await read();
    say(`Undone: ${receipt.status}.`);
  }

  async function setEdge(edge, weight, name = null) {
    await post("graph/edges", { source: edge.source, target: edge.target, weight, kind: name });
    canvas.remove(edge);
    await read();
    say("The edge was set.");
  }

  function makeTools() {
    const authority = makeSelect("authority", AUTHORITIES);
    authority.value = page.node.authority;
    const anchor = act(async () => {
      await post("graph/authority", { ids: [node], authority: authority.value });
      await read();
      say(`Authority is ${authority.value} now.`);
    });
    const target = make("input", { name: "target", required: true, autocomplete: "off", list: "targets", placeholder: "words or id" });
    const options = make("datalist", { id: "targets" });
    target.addEventListener("input", () => {
      clearTimeout(target.timer);
      target.timer = setTimeout(async () => {
        if (target.value.trim().length < 2) return;
        const answer = await latestTargets(get("documents", { q: target.value.trim(), limit: 10 }).catch(() => null));
        if (!answer) return;
        options.replaceChildren(...answer.documents.map((found) => make("option", { value: found.id }, found.title || shorten(found.text, 50))));
      }, 250);
    });
    const weight = make("input", { name: "weight", type: "number", min: -1, max: 1, step: 0.05, value: 0.6 });
    const edgeKind = makeSelect("edge_kind", [["", "taught, or inhibits below 0"], ...TYPED]);
    const connect = act(async () => setEdge({ source: node, target: target.value.trim() }, weight.valueAsNumber, edgeKind.value || null));
    const forget = act(async () => {
      if (!(await confirmAction(`Forget ${nameOf(page.node)}, its text and all its edges, in every namespace? This cannot be undone.`, "Forget"))) return;
      const { deleted } = await remove(`documents/${encodeURIComponent(node)}`);
      clear();
      canvas.clear();
      goTo("graph");
      say(`${count(deleted, "chunk")} forgotten.`);
    });
    return make("section", { class: "tools", "aria-label": "Change it" },
      make("form", { class: "line", submit: anchor, "aria-label": "Authority" }, label("Authority", authority), make("button", {}, "Set")),
      make("form", { class: "line", submit: connect, "aria-label": "Connect" }, label("Connect to", target), options, label("Weight", weight), label("Kind", edgeKind), make("button", {}, "Connect")),
      make("p", {}, make("button", { type: "button", class: "danger", click: forget }, "Forget this document")),
    );
  }

  section.append(make("form", { class: "line", submit: act(async () => say(`${count(await search(), "document")} found.`)), role: "search" }, words, make("button", {}, "Find")), results, canvas.element, place);

  return {
    async show(id, options) {
      canvas.drawing.start();
      if (!id) {
        clear();
        await begin();
        return;
      }
      if (results.firstChild) say(""); // how many were found
      results.replaceChildren();
      if (!canvas.has(id)) {
        canvas.clear();
        isFresh = false;
      }
      if (!place.firstChild) place.replaceChildren(makeSkeleton(8));
      node = id;
      offset = Math.max(0, Number(options.get("offset")) || 0);
      kind.value = options.get("kind") ?? "";
      tier.value = options.get("tier") ?? "";
      direction.value = options.get("direction") ?? "out";
      least.value = options.get("min_weight") ?? 0;
      await Promise.all([read(), isFresh || begin(id)]);
    },
    hide() {
      isFresh = false;
      canvas.drawing.stop();
    },
    reset() {
      clear();
      canvas.clear();
      latestResults();
      results.replaceChildren();
    },
  };
}
