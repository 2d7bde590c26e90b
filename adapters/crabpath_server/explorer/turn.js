// One turn: its documents with reasons, the walk, feedback, and the weights that feedback moved.

import { get, post, session } from "./api.js";
import { act, formatNumber, formatSigned, formatTime, label, make, makeTable, makeTier, say } from "./dom.js";
import { Walk } from "./walk.js";

const FEATURES_SHOWN = 4;

/** How a document was found: by search, by the walk, or by both. */
export const nameOrigin = (found) => (found.origin === "walk" ? "walk" : found.path.length ? "search and walk" : "search");

const sumTimes = (times) => {
  const total = Object.values(times ?? {}).reduce((sum, part) => sum + part, 0);
  return total ? `${total.toFixed(0)} ms, ` : "";
};

/** Shows a turn in an element; `texts` holds the texts of documents that are known already. */
export class TurnPanel {
  constructor(element, onChanged = () => {}) {
    this.element = element;
    this.onChanged = onChanged;
    this.walk = null;
    this.id = null;
  }

  /** Let go of the drawing. */
  stop() {
    this.walk?.stop();
    this.walk = null;
  }

  clear() {
    this.stop();
    this.id = null;
    this.element.replaceChildren();
  }

  async open(id, texts = new Map()) {
    this.id = id;
    const found = await get(`turns/${encodeURIComponent(id)}`);
    if (this.id !== id) return;
    this.stop();
    this.texts = texts;
    this.titles = found.titles ?? {};
    this.show(found);
    this.walk.start();
  }

  nameOf(id) {
    return this.titles[id] || id;
  }

  show(found) {
    const { turn, documents } = found;
    this.walk = new Walk(turn, this.titles, (id) => { location.hash = `graph/${encodeURIComponent(id)}`; });
    this.turn = turn;
    this.result = make("div", { class: "result" });
    this.learned = make("div", { class: "learned" });
    this.showLearned(found);
    this.element.replaceChildren(
      make("h2", { class: "question" }, turn.query),
      make("p", { class: "dim" }, `${formatTime(turn.created)}, namespace ${turn.namespace}, ${sumTimes(turn.latency_ms)}turn ${turn.id}`),
      make(
        "div", { class: "columns" },
        make("div", {}, make("ol", { class: "documents" }, documents.map((found) => this.showDocument(found))), this.makeFeedback(), this.result, this.learned),
        this.walk.element,
      ),
      this.walk.decisions,
    );
  }

  showDocument(found) {
    const shares = Object.entries(found.contributions ?? {}).filter(([name]) => name !== "bias").slice(0, FEATURES_SHOWN);
    const used = session.may("feedback") && make("input", { type: "checkbox", name: "used", value: found.id });
    const body = make("div", { class: "text" });
    const text = make("details", { toggle: act(async () => this.fillText(text, body, found.id)) }, make("summary", {}, "Text"), body);
    return make(
      "li", {},
      make(
        "div", { class: "document" },
        make("b", { class: "score", title: "probability of relevance" }, found.probability.toFixed(2)),
        make("a", { href: `#graph/${encodeURIComponent(found.id)}`, class: "title" }, found.title || found.id),
        make("span", { class: "origin" }, nameOrigin(found)),
        used && label("used", used),
      ),
      this.describeRoute(found),
      make("p", { class: "dim shares" }, shares.map(([name, share]) => make("span", {}, `${name.replaceAll("_", " ")} ${formatSigned(share, 2)}`))),
      text,
    );
  }

  async fillText(details, body, id) {
    if (!details.open || body.textContent) return;
    body.textContent = this.texts.get(id) ?? (await get(`documents/${encodeURIComponent(id)}`)).text;
  }

  describeRoute(found) {
    const step = (edge) => make("span", {}, ` ${edge.kind} ${edge.weight.toFixed(2)} `, makeTier(edge.tier), edge.probability > 0 && `π ${edge.probability.toFixed(2)}`);
    if (found.path.length) {
      return make("p", { class: "route" }, this.nameOf(found.path[0].source), found.path.map((edge) => [" →", step(edge), ` → ${this.nameOf(edge.target)}`]));
    }
    return make("p", { class: "route" }, "search found it", found.support && [";", step(found.support), ` from ${this.nameOf(found.support.source)}`]);
  }

  makeFeedback() {
    if (!session.may("feedback")) return make("p", { class: "dim" }, "Feedback needs the right feedback.");
    const correction = make("textarea", { name: "correction", rows: 2, placeholder: "What would have been right, in words" });
    const give = (outcome) => act(async () => {
      const used = [...this.element.querySelectorAll('input[name="used"]:checked')].map((box) => box.value);
      const words = correction.value.trim();
      const body = { turn_id: this.id, outcome, source: "human" };
      if (used.length) body.used = used;
      if (words) body.correction = words;
      const receipt = await post("feedback", body);
      say(`Feedback ${receipt.status}${receipt.note ? `: ${receipt.note}` : "."}`);
      await this.refresh();
    });
    return make(
      "form", { class: "feedback", "aria-label": "Feedback", submit: (event) => event.preventDefault() },
      make("div", {}, make("button", { type: "button", class: "up", click: give(1) }, "✓ It answered"), " ",
        make("button", { type: "button", class: "down", click: give(-1) }, "✗ It did not")),
      label("Correction", correction),
    );
  }

  /** Read again what feedback did; the walk stays as it is. */
  async refresh() {
    const id = this.id;
    const found = await get(`turns/${encodeURIComponent(id)}`);
    if (this.id === id) {
      this.titles = { ...this.titles, ...found.titles };
      this.showLearned(found);
    }
    this.onChanged();
  }

  showLearned({ feedback = [], changes = [] }) {
    const undo = (record) => act(async () => {
      const receipt = await post("undo", { feedback_id: record.feedback_id });
      say(`Feedback ${receipt.status}${receipt.note ? `: ${receipt.note}` : "."}`);
      await this.refresh();
    });
    const list = feedback.map((record) => make(
      "li", { class: "given" },
      `${record.outcome > 0 ? "✓" : record.outcome < 0 ? "✗" : "·"} ${formatSigned(record.outcome, 1)} ${record.status}, ${record.user ?? record.source ?? "somebody"}, ${formatTime(record.created)}`,
      record.correction && make("q", {}, record.correction), " ",
      session.may("feedback") && (record.status === "applied" || record.status === "waiting") &&
        make("button", { type: "button", class: "undo", click: undo(record) }, "Undo"),
    ));
    const givers = new Map(feedback.map((record) => [record.feedback_id, record.user ?? record.source]));
    const size = (change) => Math.abs(change.after - change.before);
    const sorted = [...changes].sort((a, b) => b.at - a.at || size(b) - size(a));
    const link = (id) => make("a", { href: `#graph/${encodeURIComponent(id)}` }, this.nameOf(id));
    const rows = sorted.map((change) => [
      make("span", {}, link(change.source), " → ", link(change.target), make("span", { class: "dim" }, ` ${change.kind}`)),
      change.before, change.after,
      formatSigned(change.after - change.before), `${change.user ?? givers.get(change.feedback_id) ?? change.feedback_id}, ${formatTime(change.at)}`,
    ]);
    this.learned.replaceChildren(
      ...(list.length ? [make("h3", {}, "Feedback"), make("ul", { class: "plain" }, list)] : []),
      ...(rows.length ? [makeTable(`Weights that moved (${rows.length})`, ["Edge", "Before", "After", "Change", "By"], rows, { class: "moved" })] : []),
      ...(!rows.length && feedback.some((record) => record.status === "applied") ? [make("p", { class: "dim" }, "No weight moved: no edge led to what was used.")] : []),
    );
  }
}
