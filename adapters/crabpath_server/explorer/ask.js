// Ask: a question, its answer with reasons, the walk, and the same question asked otherwise.

import { ask, makeLatest, post, session } from "./api.js";
import { act, label, make, makeTable, say } from "./dom.js";
import { nameOrigin, TurnPanel } from "./turn.js";

export function makeAsk(section) {
  const text = make("input", { name: "text", type: "search", required: true, autocomplete: "off", placeholder: "Ask the memory a question", "aria-label": "Question" });
  const k = make("input", { name: "k", type: "number", min: 1, max: 50, value: 5 });
  const task = make("input", { name: "task", autocomplete: "off", size: 10 });
  const plain = make("input", { name: "plain", type: "checkbox" });
  const other = make("input", { name: "other", list: "namespaces", autocomplete: "off", size: 12 });
  const comparison = make("div", { class: "comparison" });
  const panel = new TurnPanel(make("div", { class: "panel" }));
  const latest = makeLatest();

  const submit = act(async () => {
    const question = text.value.trim();
    if (!question) return;
    const begun = performance.now();
    say("Asking …");
    const body = { text: question, k: k.valueAsNumber || 5 };
    if (task.value.trim()) body.task_type = task.value.trim();
    const { namespace } = session;
    const sayHop = (hop) => session.namespace === namespace && say(`Hop ${hop.number}: ${hop.followed.length} edges followed from ${hop.frontier.length} nodes`);
    const answer = await latest(ask(body, sayHop));
    if (!answer) return;
    const texts = new Map(answer.documents.map((found) => [found.id, found.text]));
    comparison.replaceChildren();
    await panel.open(answer.turn_id, texts);
    performance.measure("turn drawn", { start: begun });
    say(`${answer.documents.length} documents.`);
    await compare(answer, body);
  });

  async function compare(answer, body) {
    const asked = [];
    const askAs = async (head, found) => [head, await found];
    if (plain.checked) asked.push(askAs("plain vector search", post("search", { text: body.text, k: body.k })));
    const name = other.value.trim();
    if (name && name !== session.namespace) asked.push(askAs(`CrabPath, ${name}`, post("query", { ...body, record: false }, name)));
    const others = await latest(Promise.all(asked));
    if (!others?.length) return;
    const columns = [[`CrabPath, ${answer.namespace}`, answer], ...others];
    const own = columns.map(([, found]) => new Set(found.documents.map((item) => item.id)));
    const cell = (item, column) => {
      if (!item) return "";
      const alone = own.filter((ids) => ids.has(item.id)).length === 1;
      return make("span", { class: alone ? "alone" : null }, make("b", { class: "score" }, item.score.toFixed(2)), ` ${item.title || item.id}`,
        alone && make("span", { class: "dim" }, column ? " only here" : " only CrabPath"), item.path.length > 0 && make("span", { class: "origin" }, nameOrigin(item)));
    };
    const rows = Array.from({ length: Math.max(...columns.map(([, found]) => found.documents.length)) }, (_, place) => [
      String(place + 1), ...columns.map(([, found], column) => cell(found.documents[place], column)),
    ]);
    comparison.replaceChildren(makeTable("The same question asked otherwise", ["Place", ...columns.map(([head]) => head)], rows));
  }

  section.append(
    make(
      "form", { class: "ask", submit },
      make("div", { class: "line" }, text, make("button", {}, "Ask")),
      make("div", { class: "line options" }, label("Documents", k), label("Task", task), label("beside plain search", plain), label("beside namespace", other)),
    ),
    comparison,
    panel.element,
  );

  return {
    show() {
      if (panel.id) panel.open(panel.id, panel.texts).catch((error) => say(error.message, true));
      else if (document.activeElement === document.body) text.focus();
    },
    hide: () => panel.stop(),
    reset() {
      latest();
      panel.clear();
      comparison.replaceChildren();
    },
  };
}
