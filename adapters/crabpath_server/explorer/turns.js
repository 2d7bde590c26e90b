// Turns: the latest questions of the namespace, as they come; each opens with its feedback.

import { get, makeLatest } from "./api.js";
import { act, formatTime, make, say, shorten } from "./dom.js";
import { TurnPanel } from "./turn.js";

const PAGE = 30;
const SECONDS = 3;

export function makeTurns(section) {
  const list = make("ul", { class: "turns", "aria-label": "Turns, newest first" });
  const older = make("button", { type: "button", class: "quiet", click: act(readOlder) }, "Older");
  const panel = new TurnPanel(make("div", { class: "panel" }), () => readNew());
  let turns = [];
  let timer = null;
  const latestNew = makeLatest();
  const latestOlder = makeLatest();

  async function readNew() {
    const answer = await latestNew(get("turns", { limit: PAGE }));
    if (!answer) return;
    const newest = answer.turns;
    const known = new Set(newest.map((turn) => turn.id));
    turns = [...newest, ...turns.filter((turn) => !known.has(turn.id))];
    show();
  }

  async function readOlder() {
    const answer = await latestOlder(get("turns", { limit: PAGE, after: turns.at(-1)?.id }));
    if (!answer) return;
    const more = answer.turns;
    turns.push(...more);
    older.hidden = more.length < PAGE;
    show();
  }

  /** Items that stay keep their elements, so that the focus stays where it was. */
  function show() {
    const items = new Map([...list.children].map((item) => [item.dataset.id, item]));
    const wanted = turns.map((turn) => {
      const item = items.get(turn.id) ?? make("li", { "data-id": turn.id },
        make("a", { href: `#turns/${encodeURIComponent(turn.id)}` }, shorten(turn.query, 90)), " ", make("span", { class: "dim" }));
      item.lastChild.textContent = `${formatTime(turn.created)}${turn.feedback_id ? " · feedback" : ""}`;
      item.firstChild.toggleAttribute("aria-current", turn.id === panel.id);
      return item;
    });
    for (const [place, item] of wanted.entries()) {
      if (list.children[place] !== item) list.insertBefore(item, list.children[place] ?? null);
    }
    while (list.children.length > wanted.length) list.lastChild.remove();
    list.classList.toggle("empty", !wanted.length);
  }

  async function tick() {
    if (document.visibilityState === "visible") await readNew().catch((error) => say(error.message, true));
    timer = timer && setTimeout(tick, SECONDS * 1000);
  }

  section.append(make("div", { class: "split" }, make("nav", { "aria-label": "Turns" }, make("h2", {}, "Turns"), list, make("p", { class: "dim none" }, "No turn yet: ask something."), older), panel.element));

  return {
    async show(id) {
      clearTimeout(timer);
      timer = setTimeout(tick, SECONDS * 1000);
      await readNew();
      older.hidden = turns.length < PAGE;
      if (id) await panel.open(id);
      else if (panel.id) await panel.open(panel.id);
      show();
    },
    hide() {
      clearTimeout(timer);
      timer = null;
      panel.stop();
    },
    reset() {
      latestNew();
      latestOlder();
      turns = [];
      panel.clear();
      list.replaceChildren();
    },
  };
}
