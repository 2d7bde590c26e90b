// The walk of a turn: seeds at the left, each hop further to the right, one decision after another.

import { formatNumber, label, make, makeButton, makeName, makeTable, makeTier, shorten } from "./dom.js";
import { Drawing, heightOf, middleOf, WIDTHS } from "./drawing.js";
import { goTo } from "./place.js";

const DECLINED_SHOWN = 2; // of each decision, unless all are wanted

/** What happened to each edge that a decision considered. */
function judge(step, edge, visited) {
  if (edge.tier === "inhibitory") return "inhibited";
  if (edge.tier === "dormant") return "dormant";
  if (step.reflexes.includes(edge.target) || step.chosen.includes(edge.target)) return "followed";
  const isOpen = edge.probability > 0 && edge.tier !== "reflex"; // a reflex is followed unless its target was visited, or the budget ended
  return isOpen || !visited.has(edge.target) ? "declined" : "known";
}

/** Decisions in their order, each with its edges by what happened to them. */
export function readWalk(turn) {
  const visited = new Set();
  for (const seed of turn.seeds) visited.add(seed.node);
  return turn.steps.map((step) => {
    const edges = step.candidates.map((edge) => ({ ...edge, source: step.node, state: judge(step, edge, visited) }));
    for (const edge of edges) if (edge.state === "followed") visited.add(edge.target);
    return { ...step, edges: edges.sort((a, b) => b.probability - a.probability || b.weight - a.weight) };
  });
}

/** What became of an edge, with its chance: 1 for a reflex. */
function describeFate({ state, tier, probability }) {
  if (state === "known") return "already there";
  if (state === "declined" && tier === "reflex") return "no room left";
  return probability ? `${state === "followed" ? "chosen with" : "chance"} ${probability.toFixed(2)}` : "";
}

const describeEdge = (edge) => `${edge.kind} ${edge.weight.toFixed(2)} ${edge.tier} ${describeFate(edge)}`.trim();

/** The drawing with its steps, and a table of all decisions. */
export class Walk {
  /** `onPoint` gets the id of the node that is pointed at, or null. */
  constructor(turn, nameOf, onPoint) {
    this.turn = turn;
    this.steps = readWalk(turn);
    this.nameOf = nameOf;
    this.ranks = new Map(turn.returned.map((item, place) => [item.node, place + 1]));
    this.at = this.steps.length + 1; // 0: seeds; n: until decision n; one more: the answer
    this.all = false;
    this.leads = new Map();
    this.drawing = new Drawing("The walk: the table of decisions below says the same.", (width) => this.compose(width), { onNode: (id) => goTo("graph", id), onPoint });
    this.element = this.build();
    this.decisions = make("details", {}, make("summary", {}, `Decisions of the walk (${this.steps.length})`), this.tabulate());
    this.describe();
  }

  start() {
    this.drawing.start();
  }

  stop() {
    this.drawing.stop();
  }

  /** Light the path to a node as it is drawn, and the one by which a document was found; null: all. */
  light(id, found = []) {
    const path = new Set();
    for (let at = id; at && !path.has(at); at = this.leads.get(at)?.source) path.add(at);
    for (const edge of found) path.add(edge.source).add(edge.target);
    this.drawing.light(id && path);
  }

  build() {
    this.note = make("p", { class: "step-note", "aria-live": "polite" });
    this.slider = make("input", {
      type: "range", min: 0, max: this.steps.length + 1, value: this.at, "aria-label": "Step of the walk",
      input: () => this.goTo(Number(this.slider.value)),
    });
    const button = (name, text, to) => makeButton(text, () => this.goTo(to()), { "aria-label": name, title: name });
    const all = make("input", { type: "checkbox", change: (event) => { this.all = event.target.checked; this.drawing.draw(); } });
    return make(
      "section", { class: "walk", "aria-label": "Walk" },
      make(
        "div", { class: "steps", role: "group", "aria-label": "Steps" },
        button("First step", "|◀", () => 0), button("Step back", "◀", () => this.at - 1), this.slider,
        button("Next step", "▶", () => this.at + 1), button("Whole walk", "▶|", () => this.steps.length + 1),
        label("All that was offered", all),
      ),
      this.note,
      this.drawing.place,
      make(
        "p", { class: "legend" },
        ...["reflex", "habitual", "dormant", "inhibitory"].map(makeTier),
        " ● visited  ○ offered and declined  1. 2. place in the answer; thicker: stronger tier",
      ),
    );
  }

  goTo(step) {
    this.at = Math.min(this.steps.length + 1, Math.max(0, step));
    this.slider.value = this.at;
    this.describe();
    this.drawing.draw();
  }

  describe() {
    this.note.textContent = this.say();
    this.slider.setAttribute("aria-valuetext", this.note.textContent);
  }

  say() {
    const last = this.steps.length + 1;
    if (this.at === last) {
      const hops = Math.max(0, ...this.steps.map((step) => step.hop + (step.edges.some((e) => e.state === "followed") ? 1 : 0)));
      return `The whole walk: ${this.turn.seeds.length} seeds, ${this.steps.length} decisions, ${hops} ${hops === 1 ? "hop" : "hops"}, ${this.turn.returned.length} documents returned.`;
    }
    if (this.at === 0) return `Seeds: search found ${this.turn.seeds.length} entries, the best with score ${formatNumber(this.turn.seeds[0]?.score ?? 0)}.`;
    const step = this.steps[this.at - 1];
    const count = (state) => step.edges.filter((edge) => edge.state === state).length;
    const followed = step.edges.filter((edge) => edge.state === "followed");
    const parts = [`${count("declined")} declined`, `${count("inhibited")} inhibited`, `${count("dormant")} dormant`, `${count("known")} to nodes already visited`];
    const went = followed.length ? `followed ${followed.map((edge) => `${shorten(this.nameOf(edge.target), 40)} (${describeEdge(edge)})`).join(", ")}` : "followed none";
    return `Decision ${this.at} of ${last - 1}, hop ${step.hop + 1}, at ${shorten(this.nameOf(step.node), 60)}, by ${step.decided_by.replace("_", " ")}: of ${step.edges.length} edges ${went}; ${parts.filter((part) => !part.startsWith("0")).join(", ") || "none declined"}.`;
  }

  /** One row for every node, its children below it: no label covers another. */
  compose(width) {
    const shown = this.steps.slice(0, Math.min(this.at, this.steps.length));
    const children = new Map();
    const depth = new Map(this.turn.seeds.map((seed) => [seed.node, 0]));
    const lead = (this.leads = new Map()); // the edge by which a node is drawn
    const extra = [];
    const known = new Set(depth.keys());
    const add = (edge, hop) => {
      if (known.has(edge.target)) {
        extra.push(edge);
        return;
      }
      known.add(edge.target);
      lead.set(edge.target, edge);
      depth.set(edge.target, hop);
      children.set(edge.source, [...(children.get(edge.source) ?? []), edge.target]);
    };
    for (const step of shown) for (const edge of step.edges) if (edge.state === "followed") add(edge, step.hop + 1);
    for (const [number, step] of shown.entries()) {
      const whole = this.all || number === this.at - 1;
      const others = step.edges.filter((edge) => edge.state === "declined").slice(0, whole ? Infinity : DECLINED_SHOWN);
      others.push(...step.edges.filter((edge) => edge.state === "inhibited" || (edge.state === "dormant" && this.all)));
      for (const edge of others) add(edge, step.hop + 1);
    }
    const final = this.at > this.steps.length;
    const rank = (id) => (final ? this.ranks.get(id) : undefined);
    const order = [];
    const visit = (id) => {
      order.push(id);
      for (const child of children.get(id) ?? []) visit(child);
    };
    for (const seed of this.turn.seeds) visit(seed.node);
    const column = Math.min(150, Math.max(26, width / 7));
    const now = this.at && this.at <= this.steps.length ? this.steps[this.at - 1].node : null;
    const nodes = order.map((id, row) => {
      const edge = lead.get(id);
      const state = edge?.state ?? "seed";
      const place = rank(id);
      const mark = place ? `${place}. ` : state === "inhibited" ? "⊣ " : "";
      const visited = state === "seed" || state === "followed";
      return {
        id, x: 14 + depth.get(id) * column, y: middleOf(row), text: mark + this.nameOf(id),
        tag: edge ? describeEdge(edge) : "", size: id === now ? 9 : visited ? 6.5 : 5,
        colour: state === "seed" ? "seed" : visited ? `tier-${edge.tier}` : state === "inhibited" ? "tier-inhibitory" : "dim",
        tagColour: edge ? `tier-${edge.tier}` : "dim", ring: !visited, strong: Boolean(place) || id === now,
      };
    });
    const line = (edge, isExtra) => ({
      source: edge.source, target: edge.target,
      colour: edge.state === "followed" ? `tier-${edge.tier}` : edge.state === "inhibited" ? "tier-inhibitory" : "faint",
      size: edge.state === "followed" ? WIDTHS[edge.tier] : edge.state === "inhibited" ? 2 : 1,
      shape: isExtra ? "curve" : "tree",
    });
    const extras = extra.filter((edge) => edge.state === "followed" || edge.state === "inhibited");
    return { height: heightOf(order.length), nodes, edges: [...[...lead.values()].map((e) => line(e, false)), ...extras.map((e) => line(e, true))] };
  }

  tabulate() {
    const list = (edges) => make("ul", { class: "plain" }, edges.map((edge) =>
      make("li", {}, makeName(this.nameOf(edge.target)), " ", make("span", { class: "dim" }, describeEdge(edge)))));
    const rows = this.steps.map((step, number) => {
      const of = (state) => step.edges.filter((edge) => edge.state === state);
      return [
        make("button", { type: "button", class: "link", click: () => this.goTo(number + 1) }, String(number + 1)),
        String(step.hop + 1), makeName(this.nameOf(step.node)), list(of("followed")), list(of("declined")),
        list([...of("inhibited"), ...of("dormant"), ...of("known")]), step.stop_probability, step.decided_by.replace("_", " "),
      ];
    });
    return makeTable("Decisions of the walk", ["Step", "Hop", "At", "Followed", "Offered and declined", "Inhibited, dormant, visited before", "Chance to stop", "By"], rows);
  }
}
