// The canvas of the graph: documents whose edges were opened, and the last walk drawn over them.

import { get, makeLatest } from "./api.js";
import { count, formatNumber, label, make, makeButton, makeSelect, makeTier } from "./dom.js";
import { Drawing, explainShares, rateShare, spread, WIDTHS } from "./drawing.js";
import { readWalk } from "./walk.js";

const MOST = 300; // documents
const MARGIN = 34; // pixels
const JUDGED = 3; // answers, below which a share says nothing
const ROLES = { entry: "found by search", reached: "reached by the walk", inhibited: "held back" };
const LEGENDS = {
  tier: () => ["● found by search", ...["reflex", "habitual"].map((tier) => ["● ", makeTier(tier)]), ...["dormant", "inhibitory"].map((tier) => ["○ ", makeTier(tier)]), "thick: the last walk, 1. 2. places in its answer"],
  use: () => ["Used by judged answers that showed it: ", ...explainShares(`in fewer than ${JUDGED}`, "never judged")],
};

/** The last turn as roles of its documents, places in the answer, and edges; null without one. */
async function readLastWalk() {
  const [last] = (await get("turns", { limit: 1 })).turns;
  if (!last) return null;
  const { turn, titles } = await get(`turns/${encodeURIComponent(last.id)}`);
  const roles = new Map(turn.seeds.map((seed) => [seed.node, { role: "entry" }]));
  const offered = readWalk(turn).flatMap((step) => step.edges);
  for (const [state, role] of [["followed", "reached"], ["inhibited", "inhibited"]]) {
    for (const edge of offered) if (edge.state === state && !roles.has(edge.target)) roles.set(edge.target, { role, edge });
  }
  for (const { node } of turn.returned) if (!roles.has(node)) roles.set(node, { role: "returned" });
  return { id: turn.id, titles, roles, places: new Map(turn.returned.map(({ node }, place) => [node, place + 1])), edges: offered.filter((edge) => roles.has(edge.source) && roles.has(edge.target)) };
}

const nameEdge = ({ source, target, kind }) => JSON.stringify([source, target, kind]);

export class Canvas {
  constructor(onNode, onBegin) {
    this.latest = makeLatest();
    this.colour = makeSelect("colour", [["tier", "tier"], ["use", "usefulness"]], { change: () => this.draw() });
    this.overlay = make("input", { type: "checkbox", checked: true, change: () => this.draw() });
    this.note = make("p", {});
    this.legend = make("p", { class: "legend line" });
    this.drawing = new Drawing("Documents and their edges", (width) => this.compose(width), { onNode, onPoint: (id) => this.point(id), isMap: true });
    this.element = make("section", { class: "card canvas", "aria-label": "Canvas", hidden: true },
      make("div", { class: "line options" }, label("Colour by", this.colour), label("Last walk", this.overlay), makeButton("Begin with the last walk", onBegin), this.drawing.zoom),
      this.drawing.place, this.note, this.legend);
    this.clear();
  }

  /** Forget what is drawn. */
  clear() {
    this.latest();
    this.walk = null;
    this.points = new Map();
    this.edges = new Map();
    this.uses = new Map();
    this.chosen = "";
    this.element.hidden = true;
  }

  has(id) {
    return this.points.has(id);
  }

  /** Read the last walk and how often documents were used; begin with the walk where nothing is drawn. */
  async read(id) {
    const found = await this.latest(Promise.all([readLastWalk(), get("learning/usage", { limit: 1000 }), get("learning/usage", { limit: 1000, order: "least" })]));
    if (!found) return;
    const isNew = found[0]?.id !== this.walk?.id;
    [this.walk] = found;
    this.uses = new Map(found.slice(1).flatMap(({ documents }) => documents.map((use) => [use.id, use])));
    if (isNew) this.overlay.checked = !id || Boolean(this.walk?.roles.has(id));
    if (isNew && this.element.isConnected) this.draw();
  }

  /** Draw a page of edges; those of one document follow, the rest stays where it was. */
  add(page) {
    const { node } = page;
    this.chosen = node.id;
    this.addPoint(node.id, node.title, true);
    let left = 0;
    for (const edge of page.edges) {
      const other = edge.source === node.id ? edge.target : edge.source;
      if (this.points.size >= MOST && !this.points.has(other)) left += 1;
      else {
        this.addPoint(other, edge.title, true, node.id);
        this.edges.set(nameEdge(edge), edge);
      }
    }
    this.draw();
    return left;
  }

  remove(edge) {
    this.edges.delete(nameEdge(edge));
  }

  /** A new one begins beside another one, each in a direction of its own. */
  addPoint(id, title, isOwn, beside) {
    const known = this.points.get(id);
    if (known) known.isOwn ||= isOwn;
    else {
      const turn = this.points.size * 2.4; // near the golden angle, in radians
      const { x, y } = this.points.get(beside) ?? { x: 0, y: 0 };
      this.points.set(id, { id, title: title || id, isOwn, x: x + Math.cos(turn), y: y + Math.sin(turn) });
    }
  }

  draw() {
    const before = new Set(this.drawn);
    const walk = this.overlay.checked ? this.walk : null;
    for (const [id, { edge }] of walk?.roles ?? []) this.addPoint(id, walk.titles[id], false, edge?.source);
    this.drawn = [...this.points.values()].filter((point) => point.isOwn || walk?.roles.has(point.id));
    this.lines = new Map([...this.edges, ...(walk?.edges ?? []).map((edge) => [nameEdge(edge), edge])]);
    const pairs = [...this.lines.values()].map((edge) => [this.points.get(edge.source), this.points.get(edge.target)]);
    if (this.drawn.some((point) => !before.has(point))) spread(this.drawn, pairs, before);
    this.legend.replaceChildren(...LEGENDS[this.colour.value]().map((part) => make("span", {}, part)));
    this.element.hidden = !this.drawn.length;
    this.drawing.draw();
    this.point(null);
  }

  neighbours(id) {
    return new Set([id, ...[...this.lines.values()].filter((edge) => edge.source === id || edge.target === id).flatMap((edge) => [edge.source, edge.target])]);
  }

  describe(id) {
    const use = this.uses.get(id);
    const role = this.overlay.checked && this.walk?.roles.get(id)?.role;
    const place = this.overlay.checked && this.walk?.places.get(id);
    return [role && ROLES[role], place && `place ${place} in the answer`,
      use ? `used by ${formatNumber(use.wins, 1)} of ${formatNumber(use.wins + use.losses, 1)} judged answers` : "never judged"].filter(Boolean).join(", ");
  }

  point(id) {
    const seen = this.points.get(id ?? this.chosen);
    this.note.textContent = seen ? `${seen.title}: ${this.describe(seen.id)}.` : `${count(this.drawn?.length ?? 0, "document")}. Choose one to see its neighbours.`;
    this.drawing.light(id && this.neighbours(id));
  }

  compose(width) {
    const height = width > 700 ? 540 : 440;
    const near = this.chosen ? this.neighbours(this.chosen) : new Set();
    const walk = this.overlay.checked ? this.walk : null;
    const fit = (name, size) => {
      const values = this.drawn.map((point) => point[name]);
      const low = Math.min(...values);
      const range = Math.max(...values) - low;
      return (point) => (range ? MARGIN + ((point[name] - low) / range) * (size - 2 * MARGIN) : size / 2);
    };
    const [across, down] = [fit("x", width), fit("y", height)];
    const strongest = new Map();
    for (const edge of this.lines.values()) {
      for (const id of [edge.source, edge.target]) if (Math.abs(edge.weight) > Math.abs(strongest.get(id)?.weight ?? 0)) strongest.set(id, edge);
    }
    const nodes = this.drawn.map((point) => {
      const { id } = point;
      const found = walk?.roles.get(id);
      const use = this.uses.get(id);
      const place = walk?.places.get(id);
      const tier = (found?.edge ?? strongest.get(id))?.tier;
      const isChosen = id === this.chosen;
      const look = this.colour.value === "use"
        ? { colour: rateShare(use && use.wins / (use.wins + use.losses), use && use.wins + use.losses >= JUDGED), ring: !use, tag: use ? `${formatNumber(use.wins, 1)} of ${formatNumber(use.wins + use.losses, 1)}` : "", size: use ? Math.min(13, 5 + 2 * Math.sqrt(use.wins + use.losses)) : 5 }
        : { colour: found?.role === "entry" || !tier ? "seed" : `tier-${tier}`, ring: found?.role !== "entry" && (tier === "dormant" || tier === "inhibitory"), size: found ? 8 : 6 };
      return { ...look, size: isChosen ? Math.max(11, look.size) : look.size, id, x: across(point), y: down(point), text: `${place ? `${place}. ` : ""}${point.title}`, strong: isChosen || Boolean(place), isChosen, more: this.describe(id) };
    });
    const matter = (node) => (node.isChosen ? 4 : 0) + (node.strong ? 2 : 0) + (near.has(node.id) ? 1.5 : 0) + (walk?.roles.has(node.id) ? 1 : 0);
    const isFollowed = (edge) => edge.state === "followed";
    const isWalked = (edge) => isFollowed(edge) || edge.state === "inhibited";
    const pairs = new Map(); // one line from a document to another: what was followed, else the strongest
    for (const edge of this.lines.values()) {
      const pair = JSON.stringify([edge.source, edge.target]);
      const other = pairs.get(pair);
      if (!other || (isFollowed(edge) - isFollowed(other) || Math.abs(edge.weight) - Math.abs(other.weight)) > 0) pairs.set(pair, edge);
    }
    const edges = [...pairs.values()].map((edge) => (
      { ...edge, colour: `tier-${edge.tier}${isWalked(edge) ? " walked" : ""}`, size: isWalked(edge) ? WIDTHS[edge.tier] : 1.25, shape: edge.tier === "inhibitory" ? "bar" : "arrow" }));
    return { height, nodes: nodes.sort((a, b) => matter(b) - matter(a)), edges: edges.sort((a, b) => a.size - b.size) };
  }
}
