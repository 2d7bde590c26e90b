// Turns: what was asked, as a list of traces; each opens with its verdicts, and two are compared.

import { get, makeLatest } from "./api.js";
import { formatNumber, formatTime, label, make, makeButton, makeName, makeSelect, makeSkeleton, makeTable, sayError } from "./dom.js";
import { goTo, keepPlace, linkTo } from "./place.js";
import { nameGiver } from "./reasons.js";
import { sumTimes, TurnPanel } from "./turn.js";

const PAGE = 50;
const SECONDS = 3;
const STAGES = ["embed", "seeds", "walk", "rerank", "rank"];
const HEADS = ["Question", "Asked", "Verdict", "By", "ms", "Stages", "Compare"];

export function makeTurns(section) {
  const words = make("input", { type: "search", name: "words", "aria-label": "Search the questions below", placeholder: "Words of a question", autocomplete: "off", input: show });
  const verdict = makeSelect("verdict", [["", "any verdict"], ["up", "right"], ["down", "wrong"], ["none", "no verdict"]], { "aria-label": "Verdict", change: show });
  const slow = make("input", { type: "number", name: "slow", min: 0, step: 10, "aria-label": "Milliseconds at least", input: show });
  const body = make("tbody", { role: "rowgroup" });
  const table = make("table", { role: "table", class: "turns", "aria-label": "Turns, newest first" },
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, HEADS.map((head) => make("th", { role: "columnheader", scope: "col" }, head)))), body);
  const none = make("p", { class: "dim none" });
  const older = makeButton("Older", readOlder);
  const back = make("p", { class: "back" });
  const compared = make("div", { class: "comparison" });
  const panel = new TurnPanel(make("div", { class: "panel" }), () => readNew());
  const list = make("div", {},
    make("form", { class: "line filters", "aria-label": "Filters", submit: (event) => event.preventDefault() }, words, verdict, label("at least ms", slow)),
    make("p", { class: "legend line" }, "Stages:", STAGES.map((name) => make("span", {}, make("i", { class: `stage-${name}` }), ` ${name}`))),
    make("div", { class: "scroll" }, table), none, older);
  let turns = [];
  let given = new Map();
  let chosen = [];
  let timer = null;
  let isRead = false;
  const latestNew = makeLatest();
  const latestOlder = makeLatest();

  async function readNew() {
    const found = await latestNew(Promise.all([get("turns", { limit: PAGE }), get("feedback", { limit: 1000 })]));
    if (!found) return;
    const newest = found[0].turns;
    given = new Map(found[1].feedback.filter((one) => one.status === "applied").map((one) => [one.feedback_id, one]));
    const known = new Set(newest.map((turn) => turn.id));
    if (!isRead) older.hidden = newest.length < PAGE;
    isRead = true;
    turns = [...newest, ...turns.filter((turn) => !known.has(turn.id))];
    show();
  }

  async function readOlder() {
    const answer = await latestOlder(get("turns", { limit: PAGE, after: turns.at(-1)?.id }));
    if (!answer) return;
    turns.push(...answer.turns);
    older.hidden = answer.turns.length < PAGE;
    show();
  }

  const judge = (turn) => given.get(turn.feedback_id);

  function passes(turn) {
    const said = judge(turn);
    const wanted = { "": true, up: said?.outcome > 0, down: said?.outcome < 0, none: !said }[verdict.value];
    const text = turn.query.toLowerCase();
    return wanted && words.value.toLowerCase().split(/\s+/).every((word) => text.includes(word)) && sumTimes(turn.latency_ms) >= (slow.valueAsNumber || 0);
  }

  function makeBars(turn, most) {
    return make("span", { class: "bars", role: "img", "aria-label": STAGES.filter((name) => turn.latency_ms[name]).map((name) => `${name} ${turn.latency_ms[name].toFixed(0)} ms`).join(", ") || "not measured" },
      STAGES.filter((name) => turn.latency_ms[name]).map((name) => {
        const bar = make("i", { class: `stage-${name}`, title: `${name} ${turn.latency_ms[name].toFixed(1)} ms` });
        bar.style.width = `${(turn.latency_ms[name] / most) * 100}%`; // by script: the policy lets no style attributes in
        return bar;
      }));
  }

  function makeRow(turn) {
    const box = make("input", { type: "checkbox", "aria-label": `Compare: ${turn.query}`, change: () => choose(turn.id, box.checked) });
    const cells = HEADS.map((head) => make("td", { role: "cell", "data-head": head }));
    cells[0].append(make("a", { href: linkTo("turns", turn.id) }, makeName(turn.query)));
    cells[6].append(box);
    return make("tr", { role: "row", "data-id": turn.id }, cells);
  }

  function fillRow(row, turn, most) {
    const said = judge(turn);
    const [, asked, thumb, by, ms, bars, compare] = row.children;
    asked.textContent = formatTime(turn.created);
    thumb.textContent = said ? (said.outcome > 0 ? "✓ right" : said.outcome < 0 ? "✗ wrong" : "· mixed") : turn.feedback_id ? "given" : "";
    thumb.className = said?.outcome > 0 ? "good" : said?.outcome < 0 ? "bad" : "";
    by.replaceChildren(said ? makeName(nameGiver(said)) : "");
    ms.textContent = formatNumber(Math.round(sumTimes(turn.latency_ms)));
    ms.className = "number";
    if (bars.dataset.most !== String(most)) bars.replaceChildren(makeBars(turn, most));
    bars.dataset.most = most;
    compare.firstChild.checked = chosen.includes(turn.id);
  }

  /** Rows that stay keep their elements, so that the focus stays where it was. */
  function show() {
    const rows = new Map([...body.children].map((row) => [row.dataset.id, row]));
    const wanted = turns.filter(passes);
    const times = wanted.map((turn) => sumTimes(turn.latency_ms)).sort((a, b) => a - b);
    const most = Math.max(1, times[Math.floor(times.length * 0.95)] ?? 1); // the first question loads the embedder
    for (const [place, turn] of wanted.entries()) {
      const row = rows.get(turn.id) ?? makeRow(turn);
      fillRow(row, turn, Math.ceil(most));
      if (body.children[place] !== row) body.insertBefore(row, body.children[place] ?? null);
    }
    while (body.children.length > wanted.length) body.lastChild.remove();
    table.hidden = !wanted.length;
    none.textContent = wanted.length ? "" : turns.length ? "No question here passes these filters." : "No turn yet: ask something.";
  }

  function choose(id, isChosen) {
    chosen = isChosen ? [...chosen, id].slice(-2) : chosen.filter((other) => other !== id);
    show();
    compare().catch(sayError);
  }

  /** Two turns side by side: places and probabilities. */
  async function compare() {
    if (chosen.length < 2) {
      compared.replaceChildren();
      return;
    }
    const both = await Promise.all(chosen.map((id) => get(`turns/${encodeURIComponent(id)}`)));
    const places = both.map(({ documents }) => new Map(documents.map((found, place) => [found.id, `${place + 1}. (${found.probability.toFixed(2)})`])));
    const titles = new Map(both.flatMap(({ documents }) => documents.map((found) => [found.id, found.title || found.id])));
    compared.replaceChildren(makeTable("Two turns compared", ["Document", ...both.map(({ turn }) => `${turn.query}, ${formatTime(turn.created)}`)],
      [...titles].map(([id, title]) => [makeName(title), ...places.map((known) => known.get(id) ?? "–")])));
    compared.scrollIntoView({ block: "nearest" });
    compared.firstChild.focus({ preventScroll: true });
  }

  async function tick() {
    if (document.visibilityState === "visible") await readNew().catch(sayError);
    timer = timer && setTimeout(tick, SECONDS * 1000);
  }

  back.append(make("a", { href: "#", click: (event) => { event.preventDefault(); goTo("turns"); } }, "← All turns"));
  section.append(compared, list, back, panel.element);

  return {
    async show(id) {
      clearTimeout(timer);
      timer = setTimeout(tick, SECONDS * 1000);
      list.hidden = compared.hidden = Boolean(id);
      back.hidden = panel.element.hidden = !id;
      if (id) {
        if (panel.id !== id) panel.element.replaceChildren(makeSkeleton(6));
        await panel.open(id);
      } else {
        panel.clear();
        keepPlace("turns");
        if (!isRead) none.replaceChildren(makeSkeleton(6));
        await readNew();
      }
    },
    hide() {
      clearTimeout(timer);
      timer = null;
      panel.stop();
    },
    press: (key) => panel.press(key),
    refresh: () => (panel.id ? panel.refresh().catch(sayError) : undefined),
    reset() {
      latestNew();
      latestOlder();
      turns = [];
      chosen = [];
      isRead = false;
      panel.clear();
      body.replaceChildren();
      compared.replaceChildren();
    },
  };
}
