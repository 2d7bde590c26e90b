// One turn: its documents with reasons, the walk, the verdict, and what that changed.

import { get, post, session } from "./api.js";
import { act, count, dropTitle, formatSigned, formatTime, make, makeButton, makeLink, makeName, makeTable, makeTier, say, sayError, shorten } from "./dom.js";
import { describeDocument, describeMove, describePrecedent, findPrecedents, nameGiver } from "./reasons.js";
import { Walk } from "./walk.js";

const MARKS = ["used", "unused", "irrelevant"];
const SNIPPET = 260; // characters
const SHOWN_CHANGE = 0.005; // of a probability
const UNLIKELY = 0.05; // probability below which places say nothing

/** How a document was found: by search, by the walk, or by both. */
export const nameOrigin = (found) => (found.origin === "walk" ? "walk" : found.path.length ? "search and walk" : "search");

export const sumTimes = (times) => Object.values(times ?? {}).reduce((sum, part) => sum + part, 0);
const isStanding = (record) => record.status === "applied" || record.status === "waiting";
const percent = (value) => value.toFixed(2).replace(/^0/, "");

/** The words of a text that a question has, marked. */
function markWords(text, question) {
  const words = [...new Set(question.toLowerCase().match(/[\p{L}\p{N}]{4,}/gu) ?? [])];
  if (!words.length) return [text];
  const found = new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|")})(?![\\p{L}\\p{N}])`, "giu");
  const parts = [];
  let end = 0;
  for (const hit of text.matchAll(found)) {
    parts.push(text.slice(end, hit.index), make("mark", {}, hit[0]));
    end = hit.index + hit[0].length;
  }
  return [...parts, text.slice(end)];
}

/** Shows a turn in an element; `onChanged` is called after each verdict. */
export class TurnPanel {
  constructor(element, onChanged = () => {}) {
    this.element = element;
    this.onChanged = onChanged;
    this.walk = null;
    this.id = null;
    this.thumb = 0; // the outcome that was given as such, and not with a mark
    this.queue = Promise.resolve();
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

  /** Read a turn and show it; `k` documents are asked for when the question is asked again. */
  async open(id, k) {
    const before = this.id;
    if (id !== before) this.thumb = 0;
    this.id = id;
    const found = await get(`turns/${encodeURIComponent(id)}`).catch((error) => {
      if (this.id === id && id !== before) this.clear(); // the turn before has nothing to do with this address
      throw error;
    });
    if (this.id !== id) return;
    this.stop();
    this.k = k || Math.max(1, found.turn.returned.length);
    this.show(found);
    this.walk.start();
    if (this.mine) {
      const documents = await this.askAgain();
      if (this.id === id) this.showChange(documents);
    }
  }

  nameOf(id) {
    return this.titles[id] || id;
  }

  show(found) {
    const { turn, documents } = found;
    this.turn = turn;
    this.texts = found.texts;
    this.precedents = found.precedents;
    this.titles = found.titles;
    this.walk = new Walk(turn, (node) => this.nameOf(node), (node) => this.point(node));
    this.change = make("section", { class: "change", "aria-label": "What changed", "aria-live": "polite", hidden: true });
    this.learned = make("div", { class: "learned" });
    this.buttons = {
      up: makeButton("✓ It answered", () => this.giveThumb(1), { class: "thumb up", title: "key: u" }),
      down: makeButton("✗ It did not", () => this.giveThumb(-1), { class: "thumb down", title: "key: d" }),
    };
    this.cards = documents.map((one, place) => this.makeCard(one, place));
    const list = make("ol", { class: "documents" }, this.cards.map((card) => card.element));
    this.verdict = make("p", { class: "recorded dim" });
    this.element.replaceChildren(
      make("h2", { class: "question" }, makeName(turn.query, { class: "whole" })),
      make("p", { class: "dim" }, `${formatTime(turn.created)}, answered in ${sumTimes(turn.latency_ms).toFixed(0)} ms`),
      session.may("feedback") && documents.length
        ? make("div", { class: "verdict", role: "group", "aria-label": "Was this right?" }, make("strong", {}, "Was this right?"), this.buttons.up, this.buttons.down, this.verdict)
        : make("p", { class: "dim" }, documents.length ? "Feedback needs the right feedback." : "No document answers it: this memory has none, or none passed the filter."),
      this.change,
      make("div", { class: "columns" }, make("div", {}, list, this.learned), make("div", {}, this.walk.element)),
      this.walk.decisions,
    );
    this.showVerdicts(found);
  }

  /** Light a document and its path in the walk; null: nothing is pointed at. */
  point(id) {
    this.walk?.light(id, this.cards.find((card) => card.id === id)?.path);
    for (const card of this.cards) card.element.classList.toggle("lit", card.id === id);
  }

  makeCard(found, place) {
    const text = this.texts[found.id] ?? "";
    const title = found.title && found.title !== found.id ? found.title : shorten(text, 70) || found.id;
    const bare = dropTitle(text, found.title);
    const context = { precedents: this.precedents, question: this.turn.query, nameOf: (id) => this.nameOf(id) };
    const mark = (name, words) => makeButton(words, () => this.giveMark(found.id, name), { class: "mark", "data-mark": name, "aria-label": `${words}: ${title}` });
    const marks = session.may("feedback") ? [mark("used", "Used"), mark("unused", "Not used")] : [];
    const correction = make("form", { class: "correction", hidden: true, submit: act(() => this.giveCorrection(found.id, words.value)) });
    const words = make("textarea", { rows: 2, required: true, "aria-label": `Correction of ${title}`, placeholder: "What would have been right, in words",
      keydown: (event) => {
        if (event.key === "Escape") toggle.click();
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) correction.requestSubmit();
      } });
    const toggle = make("button", { type: "button", class: "quiet", "aria-expanded": "false", click: () => {
      correction.hidden = !correction.hidden;
      toggle.setAttribute("aria-expanded", !correction.hidden);
      (correction.hidden ? toggle : words).focus();
    } }, "Correct it …");
    correction.append(words, make("button", {}, "Teach this"));
    const whole = bare.length > SNIPPET;
    const element = make(
      "li", { class: "card", "data-id": found.id, mouseenter: () => this.point(found.id), mouseleave: () => this.point(null), focusin: (event) => event.target.matches(":focus-visible") && this.point(found.id), focusout: () => this.point(null) },
      make("div", { class: "document" },
        make("span", { class: "place", "aria-hidden": "true" }, String(place + 1)),
        makeLink(found.id, title, { class: "title" }),
        make("span", { class: "score", title: "probability that it answers the question" }, percent(found.probability)),
        make("span", { class: "origin" }, nameOrigin(found))),
      make("p", { class: "reason" }, describeDocument(found, context)),
      make("p", { class: "snippet", dir: "auto" }, markWords(this.cut(bare), this.turn.query)),
      make("div", { class: "line actions" }, marks, marks.length > 0 && toggle,
        whole && make("details", {}, make("summary", {}, "Whole text"), make("div", { class: "text", dir: "auto", tabindex: 0 }, markWords(text, this.turn.query))),
        make("details", { class: "why" }, make("summary", {}, "Why here?"), this.makeReasons(found))),
      correction,
    );
    return { element, marks, id: found.id, path: found.path, correction, toggle };
  }

  /** The passage of a text with most words of the question. */
  cut(text) {
    const line = text.replace(/\s+/g, " ").trim();
    if (line.length <= SNIPPET) return line;
    const words = [...new Set(this.turn.query.toLowerCase().match(/[\p{L}\p{N}]{4,}/gu) ?? [])];
    const starts = [0, ...[...line.matchAll(/[.!?] /g)].map((end) => end.index + 2)].filter((start) => start < line.length - 40);
    const rate = (start) => words.filter((word) => line.slice(start, start + SNIPPET).toLowerCase().includes(word)).length;
    const best = starts.reduce((one, other) => (rate(other) > rate(one) ? other : one), 0);
    return `${best ? "… " : ""}${line.slice(best, best + SNIPPET)}${best + SNIPPET < line.length ? " …" : ""}`;
  }

  /** Past questions with their verdicts, the route with its weights, and the log-odds. */
  makeReasons(found) {
    const past = findPrecedents(this.precedents, found.id);
    const shares = Object.entries(found.contributions ?? {}).filter(([name, share]) => name !== "bias" && share);
    const step = (edge) => [` ${edge.kind.replaceAll("_", " ")} ${edge.weight.toFixed(2)} `, makeTier(edge.tier), edge.probability > 0 && `chosen with ${edge.probability.toFixed(2)} `];
    const route = found.path.length
      ? [makeName(this.nameOf(found.path[0].source)), found.path.map((edge) => [" →", step(edge), "→ ", makeName(this.nameOf(edge.target))])]
      : ["search", found.support && [";", step(found.support), "from ", makeName(this.nameOf(found.support.source))]];
    return make("div", { class: "reasons" },
      past.length > 0 && [make("h3", {}, "Past questions"), make("ul", { class: "plain" }, past.map((one) => make("li", {},
        one.outcome > 0 ? "✓ " : one.outcome < 0 ? "✗ " : "· ", describePrecedent(one, found.id, this.turn.query), " ",
        session.mayUndo(one) && makeButton("Undo", () => this.undo(one.feedback_id), { class: "small" }))))],
      make("h3", {}, "Route"), make("p", { class: "route" }, route),
      shares.length > 0 && make("details", {}, make("summary", {}, "In numbers"),
        makeTable("Log-odds by feature", ["Feature", "Log-odds"], shares.map(([name, share]) => [name.replaceAll("_", " "), formatSigned(share, 2)]), { class: "shares" })));
  }

  /** The standing verdict of whoever uses this page. */
  findMine(feedback) {
    return feedback.find((record) => isStanding(record) && record.source === "human" && record.user === session.giver);
  }

  giveThumb(outcome) {
    return this.revise((state) => {
      this.thumb = state.outcome === outcome ? 0 : outcome;
      return this.thumb ? { ...state, outcome, correction: null } : null;
    });
  }

  giveMark(id, name) {
    return this.revise((state) => {
      const isOn = state[name].has(id);
      for (const mark of MARKS) state[mark].delete(id);
      if (!isOn) state[name].add(id);
      const outcome = state.outcome || (name === "used" ? 1 : -1);
      // An outcome that only came with a mark goes with the last one.
      return MARKS.some((mark) => state[mark].size) || this.thumb || state.correction ? { ...state, outcome } : null;
    });
  }

  giveCorrection(id, words) {
    if (!words.trim()) throw new Error("Say in words what would have been right.");
    return this.revise((state) => {
      for (const mark of MARKS) state[mark].delete(id);
      state.irrelevant.add(id);
      return { ...state, outcome: -1, correction: words.trim() };
    });
  }

  /**
   * Record another verdict in place of the standing one, one after the other; then show what it
   * changed. `choose` gets the standing one, and returns null for none.
   */
  revise(choose) {
    const begun = performance.now();
    const id = this.id;
    this.queue = this.queue.catch(() => {}).then(async () => {
      if (this.id !== id) return;
      const { mine } = this;
      const marks = Object.fromEntries(MARKS.map((name) => [name, new Set(mine?.[name] ?? [])]));
      const state = choose({ outcome: mine?.outcome ?? 0, correction: mine?.correction ?? null, ...marks });
      const isLess = state && mine && (MARKS.some((name) => mine[name]?.length && !state[name].size) || (mine.correction && !state.correction));
      let receipt = { status: "undone" };
      if (mine && (!state || isLess)) receipt = await post("undo", { feedback_id: mine.feedback_id });
      if (state) {
        const body = { turn_id: id, outcome: state.outcome, source: "human" };
        for (const name of MARKS) if (state[name].size) body[name] = [...state[name]];
        if (state.correction) body.correction = state.correction;
        receipt = await post("feedback", body);
      }
      await this.refresh(begun);
      say(receipt.note ? `Feedback ${receipt.status}: ${receipt.note}` : `Feedback ${receipt.status}.`, receipt.status === "refused");
    });
    return this.queue;
  }

  async undo(feedbackId) {
    const begun = performance.now();
    const receipt = await post("undo", { feedback_id: feedbackId });
    await this.refresh(begun);
    say(`Feedback ${receipt.status}${receipt.note ? `: ${receipt.note}` : "."}`);
  }

  /** Undo the own verdict; the key z. */
  undoMine() {
    return this.mine ? this.undo(this.mine.feedback_id) : Promise.resolve();
  }

  /** Read again what feedback did, and ask again; the walk stays as it is. */
  async refresh(begun) {
    const { id } = this;
    if (!id) return;
    const [found, documents] = await Promise.all([get(`turns/${encodeURIComponent(id)}`), begun && this.askAgain()]);
    if (this.id !== id) return;
    this.titles = { ...this.titles, ...found.titles };
    this.showVerdicts(found);
    if (begun) {
      this.showChange(documents);
      performance.measure("change drawn", { start: begun });
      this.onChanged();
    }
  }

  async askAgain() {
    const { turn } = this;
    const body = { text: turn.query, k: this.k, record: false };
    if (turn.task_type) body.task_type = turn.task_type;
    return (await post("query", body)).documents;
  }

  /** Places up and down, and why, between the answer of the turn and one of now. */
  showChange(documents) {
    const before = new Map(this.turn.returned.map((item, place) => [item.node, { ...item, place }]));
    const rows = documents.map((found, place) => {
      const old = before.get(found.id);
      before.delete(found.id);
      const up = old ? old.place - place : null;
      const moved = up === null || up !== 0 || Math.abs(found.score - old.probability) >= SHOWN_CHANGE;
      return { id: found.id, title: found.title || found.text, place, up, moved, before: old?.probability, after: found.score, why: moved ? describeMove(old, found, this.mine) : "" };
    });
    const gone = [...before.values()].map((old) => ({ id: old.node, title: this.nameOf(old.node), place: null, up: -1, moved: true, before: old.probability, why: "others are more likely" }));
    const all = [...rows, ...gone];
    const shown = all.filter((row) => Math.max(row.before ?? 0, row.after ?? 0) >= UNLIKELY);
    const some = shown.some((row) => row.moved);
    this.change.hidden = !some && !this.mine;
    const arrow = (row) => (row.place === null ? ["down", "▼", "left the answer"] : row.up === null ? ["up", "▲", "new in the answer"]
      : row.up > 0 ? ["up", `▲${row.up}`, `${row.up} up`] : row.up < 0 ? ["down", `▼${-row.up}`, `${-row.up} down`] : ["same", "=", "same place"]);
    const item = (row) => {
      const [kind, sign, words] = arrow(row);
      return make("li", { class: row.moved ? `move ${kind}` : "move same dim", "data-id": row.id },
        make("span", { class: "place" }, row.place === null ? "–" : String(row.place + 1)), make("span", { class: "arrow", role: "img", "aria-label": words, title: words }, sign),
        makeLink(row.id, row.title, { class: "title" }), make("span", { class: "score" }, `${row.before == null ? "" : `${percent(row.before)} → `}${row.after == null ? "out" : percent(row.after)}`),
        row.why && make("span", { class: "why-moved" }, row.why));
    };
    const [first] = rows;
    const sentence = !some ? "Asked again, it answers the same."
      : first && ["Next time ", makeName(first.title, { class: "name strong" }), first.up === 0 ? " stays first" : " will be first", first.before == null ? "." : ` (${percent(first.before)} → ${percent(first.after)}).`];
    this.change.replaceChildren(
      make("div", { class: "line" }, make("h3", {}, "What changed"), make("span", {}, sentence), this.mine && makeButton("Undo", () => this.undoMine(), { class: "undo", title: "z" })),
      some ? make("ol", { class: "moves" }, shown.map(item)) : "",
      some && shown.length < all.length ? make("p", { class: "dim small" }, `${count(all.length - shown.length, "other")} below ${percent(UNLIKELY)}.`) : "",
    );
  }

  /** Pressed buttons, and who has given which verdict. */
  showVerdicts({ feedback = [], changes = [] }) {
    this.mine = this.findMine(feedback);
    const { mine } = this;
    if (!mine) this.thumb = 0;
    this.buttons.up.setAttribute("aria-pressed", Boolean(mine && mine.outcome > 0));
    this.buttons.down.setAttribute("aria-pressed", Boolean(mine && mine.outcome < 0));
    this.verdict.textContent = mine ? `Recorded ${formatTime(mine.created)}${mine.status === "waiting" ? ", not learned yet" : ""}.` : "";
    for (const card of this.cards) {
      for (const button of card.marks) {
        button.setAttribute("aria-pressed", Boolean(mine?.[button.dataset.mark]?.includes(card.id) || (button.dataset.mark === "unused" && mine?.irrelevant?.includes(card.id))));
      }
      if (mine?.correction && mine.irrelevant?.includes(card.id) && !card.correction.hidden) card.toggle.click();
    }
    const list = feedback.map((record) => make(
      "li", { class: isStanding(record) ? "given" : "given dim" },
      `${record.outcome > 0 ? "✓" : record.outcome < 0 ? "✗" : "·"} `, makeName(nameGiver(record)), `, ${formatTime(record.created)}, ${record.status}`,
      record.correction && make("q", { dir: "auto" }, record.correction), " ",
      session.mayUndo(record) && isStanding(record) && record !== mine && makeButton("Undo", () => this.undo(record.feedback_id), { class: "small" }),
    ));
    const givers = new Map(feedback.map((record) => [record.feedback_id, nameGiver(record)]));
    const size = (change) => Math.abs(change.after - change.before);
    const sorted = [...changes].sort((a, b) => b.at - a.at || size(b) - size(a));
    const rows = sorted.map((change) => [
      make("span", {}, makeLink(change.source, this.nameOf(change.source)), " → ", makeLink(change.target, this.nameOf(change.target)), make("span", { class: "dim" }, ` ${change.kind}`)),
      change.before, change.after,
      formatSigned(change.after - change.before), make("span", {}, makeName(change.user ?? givers.get(change.feedback_id) ?? change.feedback_id), `, ${formatTime(change.at)}`),
    ]);
    const wasOpen = this.learned.querySelector("details")?.open;
    this.learned.replaceChildren(
      ...(list.length ? [make("h3", {}, "Verdicts"), make("ul", { class: "plain" }, list)] : []),
      ...(rows.length ? [make("details", { open: wasOpen }, make("summary", {}, `Edges that moved (${rows.length})`), makeTable("Edges that moved", ["Edge", "Before", "After", "Change", "By"], rows, { class: "moved" }))] : []),
    );
  }

  /** Keys: u and d give a thumb, z undoes it, arrows go from document to document. */
  press(key) {
    if (!this.id || !this.cards) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (step) {
      const links = this.cards.map((card) => card.element.querySelector(".title"));
      const at = links.indexOf(document.activeElement);
      const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step];
      next?.focus();
      return Boolean(next);
    }
    if (!session.may("feedback")) return false;
    if (key === "u" || key === "d") this.buttons[key === "u" ? "up" : "down"].click();
    else if (key === "z") this.undoMine().catch(sayError);
    else return false;
    return true;
  }
}
