// Ask: the first screen; a question, its answer, and the same question asked otherwise.

import { ask, get, makeLatest, post, session } from "./api.js";
import { act, count, label, make, makeName, makeSkeleton, makeTable, say, sayError } from "./dom.js";
import { showHome } from "./home.js";
import { addPlace } from "./place.js";
import { nameOrigin, TurnPanel } from "./turn.js";

export function makeAsk(section) {
  const text = make("input", { name: "text", type: "search", required: true, autocomplete: "off", placeholder: "Ask the memory a question", "aria-label": "Question", dir: "auto" });
  const k = make("input", { name: "k", type: "number", min: 1, max: 50, value: 5 });
  const task = make("input", { name: "task", autocomplete: "off", size: 10 });
  const plain = make("input", { name: "plain", type: "checkbox" });
  const other = make("input", { name: "other", list: "namespaces", autocomplete: "off", size: 12 });
  const comparison = make("div", { class: "comparison" });
  const home = make("div", { class: "home" });
  const panel = new TurnPanel(make("div", { class: "panel" }));
  const latest = makeLatest();
  let asking = null; // the request whose answer this view waits for

  const readOptions = () => ({ k: k.valueAsNumber === 5 ? "" : k.value, task: task.value.trim(), plain: plain.checked, other: other.value.trim() });

  async function submit() {
    const question = text.value.trim();
    if (!question) return;
    await session.opening;
    const begun = performance.now();
    say("Asking …");
    if (!panel.id) panel.element.replaceChildren(makeSkeleton(6));
    home.hidden = true;
    const body = { text: question, k: k.valueAsNumber || 5 };
    if (task.value.trim()) body.task_type = task.value.trim();
    const { namespace } = session;
    const sayHop = (hop) => session.namespace === namespace && say(`Hop ${hop.number}: ${hop.followed.length} edges followed from ${hop.frontier.length} nodes`);
    const asked = ask(body, sayHop);
    asking = asked;
    try {
      const answer = await latest(asked.finally(() => { if (asking === asked) asking = null; }));
      if (!answer) return;
      comparison.replaceChildren();
      addPlace("ask", answer.turn_id, readOptions());
      await panel.open(answer.turn_id, body.k);
      performance.measure("turn drawn", { start: begun });
      say(`${count(answer.documents.length, "document")}.`);
      await compare(answer.documents, body);
    } catch (error) {
      if (!panel.id) {
        panel.clear();
        home.hidden = false;
      }
      throw error;
    }
  }

  async function compare(documents, body) {
    const asked = [];
    const askAs = async (head, found) => [head, await found];
    if (plain.checked) asked.push(askAs("plain vector search", post("search", { text: body.text, k: body.k })));
    const name = other.value.trim();
    if (name && name !== session.namespace) asked.push(askAs(`CrabPath, ${name}`, post("query", { ...body, record: false }, name)));
    const others = await latest(Promise.all(asked));
    if (!others?.length) return;
    const columns = [[`CrabPath, ${session.namespace}`, { documents }], ...others];
    const own = columns.map(([, found]) => new Set(found.documents.map((item) => item.id)));
    const cell = (item, column) => {
      if (!item) return "";
      const alone = own.filter((ids) => ids.has(item.id)).length === 1;
      return make("span", { class: alone ? "alone" : null }, make("b", { class: "score" }, (item.score ?? item.probability).toFixed(2)), " ", makeName(item.title || item.id),
        alone && make("span", { class: "dim" }, column ? " only here" : " only CrabPath"), item.path.length > 0 && make("span", { class: "origin" }, nameOrigin(item)));
    };
    const rows = Array.from({ length: Math.max(...columns.map(([, found]) => found.documents.length)) }, (_, place) => [
      String(place + 1), ...columns.map(([, found], column) => cell(found.documents[place], column)),
    ]);
    comparison.replaceChildren(makeTable("The same question asked otherwise", ["ListPlace", ...columns.map(([head]) => head)], rows));
  }

  const form = make(
    "form", { class: "ask", submit: act(submit) },
    make("div", { class: "line" }, text, make("button", {}, "Ask")),
    make("details", { class: "options" }, make("summary", {}, "Options"),
      make("div", { class: "line" }, label("Documents", k), label("Task", task), label("beside plain search", plain), label("beside namespace", other))),
  );
  section.append(form, comparison, home, panel.element);

  function askExample(question) {
    text.value = question;
    form.requestSubmit();
  }

  return {
    /** A turn of the address, else the first screen. */
    async show(id, options) {
      if (id && id === panel.id) {
        await panel.open(id, panel.k);
        return;
      }
      if (!id && asking && !panel.id) return; // asked before the page was open
      latest();
      comparison.replaceChildren();
      home.hidden = Boolean(id);
      if (id) {
        k.value = options.get("k") || 5;
        task.value = options.get("task") ?? "";
        plain.checked = options.get("plain") === "true";
        other.value = options.get("other") ?? "";
        text.value = "";
        form.querySelector("details").open = plain.checked || Boolean(other.value || task.value);
        await panel.open(id, k.valueAsNumber);
        text.value ||= panel.turn.query; // what was typed meanwhile stays
        if (plain.checked || other.value) {
          const { documents } = await get(`turns/${encodeURIComponent(id)}`);
          await compare(documents, { text: panel.turn.query, k: k.valueAsNumber || 5 });
        }
        return;
      }
      if (panel.id && document.activeElement !== text) text.value = "";
      panel.clear();
      if (document.activeElement === document.body) text.focus({ preventScroll: true });
      await showHome(home, askExample);
    },
    hide() {
      latest(); // an answer that comes later would change the address of another view
      asking = null;
      panel.stop();
    },
    focus: () => text.select() ?? text.focus(),
    press: (key) => panel.press(key),
    refresh: () => (panel.id ? panel.refresh().catch(sayError) : undefined),
    reset() {
      latest();
      asking = null;
      panel.clear();
      comparison.replaceChildren();
      home.replaceChildren();
    },
  };
}
