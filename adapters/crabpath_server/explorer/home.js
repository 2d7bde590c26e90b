// The first screen: what is in the memory, questions to begin with, and how to add files.

import { get, post, session } from "./api.js";
import { count, make, makeName, makeSkeleton, say, sayError, shorten } from "./dom.js";
import { formatLift } from "./learning.js";
import { linkTo } from "./place.js";

const MOST_BYTES = 6_000_000; // of one file; a request may have 8 MB
const EXAMPLES = 5;

/** Questions that were answered, else the titles of documents. */
async function findExamples() {
  const [{ turns }, { feedback }, { documents }] = await Promise.all([get("turns", { limit: 60 }), get("feedback", { limit: 100 }), get("documents", { limit: 8 })]);
  const good = new Set(feedback.filter((one) => one.status === "applied" && one.outcome > 0).map((one) => one.feedback_id));
  const asked = [...turns].sort((a, b) => good.has(b.feedback_id) - good.has(a.feedback_id)).map((turn) => turn.query);
  const titles = documents.map((found) => found.title).filter(Boolean).map((title) => `What is ${title}?`);
  return [...new Set([...asked, ...titles].map((text) => text.trim()))].filter((text) => text.length > 3 && text.length < 200).slice(0, EXAMPLES);
}

/** The text of a file; null for one that is no text. */
async function readText(file) {
  if (!file.size || file.size > MOST_BYTES) return null;
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** Add files one after the other; those that are no texts are named in one sentence. */
async function addFiles(files, onChanged) {
  const [refused, unread] = [[], []];
  let chunks = 0;
  let added = 0;
  for (const file of files) {
    say(`Reading ${file.name} …`);
    const text = await readText(file);
    if (text === null || !text.trim()) {
      refused.push(file.name);
      continue;
    }
    const name = file.webkitRelativePath || file.name;
    try {
      const report = await post("documents", { documents: [{ id: name, text, is_file: true, metadata: { source: name } }] });
      chunks += (report.added ?? 0) + (report.updated ?? 0);
      added += 1;
    } catch (error) {
      if (error.status !== 400) throw error;
      unread.push(`${error.message}.`); // the next file may be readable
    }
  }
  if (added) await onChanged();
  const names = refused.map((name) => shorten(name, 40)).join(", ");
  const no = refused.length ? `${names}: not ${refused.length === 1 ? "a text" : "texts"} of at most 6 MB in UTF-8; crabpath add reads PDF, Word and others.` : "";
  say([added ? `${count(added, "file")} added, ${count(chunks, "passage")}.` : "", no, ...unread].filter(Boolean).join(" "), refused.length + unread.length > 0);
}

function makeDrop(onChanged) {
  const take = (files) => addFiles([...files], onChanged).catch(sayError);
  const input = make("input", { type: "file", multiple: true, "aria-label": "Files to add", change: () => take(input.files).then(() => { input.value = ""; }) });
  const zone = make("div", {
    class: "drop",
    dragover: (event) => { event.preventDefault(); zone.classList.add("over"); },
    dragleave: () => zone.classList.remove("over"),
    drop: (event) => { event.preventDefault(); zone.classList.remove("over"); take(event.dataTransfer.files); },
  }, make("p", {}, make("strong", {}, "Drop text files here"), " (Markdown, plain text, HTML, CSV, JSON), or choose some: "), input,
  make("p", { class: "dim" }, "For whole folders, PDF and Word: ", make("code", {}, "crabpath add FOLDER")));
  return zone;
}

/** Fills an element; `onQuestion` is called with an example. */
export async function showHome(place, onQuestion) {
  if (!session.may("read")) {
    place.replaceChildren(make("p", { class: "dim" }, "This token does not grant the right read."));
    return;
  }
  if (!place.firstChild) place.replaceChildren(makeSkeleton(5));
  const again = () => showHome(place, onQuestion);
  const { namespace } = session;
  const [overview, examples, lift] = await Promise.all([get("overview"), findExamples(), get("learning/lift").catch(() => ({ weeks: [] }))]);
  if (namespace !== session.namespace) return;
  if (!overview.chunks) {
    place.replaceChildren(make("section", { class: "card first-run" }, make("h2", {}, "This memory is empty"),
      session.may("write") ? [make("p", {}, "Give it something to read, then ask."), makeDrop(again)] : make("p", {}, "Somebody with the right ", make("code", {}, "write"), " can add documents: ", make("code", {}, "crabpath add FOLDER"), ".")));
    return;
  }
  const fact = (number, words, link) => make("a", { class: "card fact", href: link }, make("strong", {}, number.toLocaleString("en")), make("span", {}, words));
  place.replaceChildren(
    make("div", { class: "facts" },
      fact(overview.chunks, overview.chunks === 1 ? "passage" : "passages", linkTo("graph")), fact(overview.sources, overview.sources === 1 ? "source" : "sources", linkTo("graph")),
      fact(overview.turns, overview.turns === 1 ? "question" : "questions", linkTo("turns")), fact(overview.feedback, overview.feedback === 1 ? "verdict" : "verdicts", linkTo("learning")),
      fact(overview.notes, overview.notes === 1 ? "note" : "notes", linkTo("learning"))),
    make("p", { class: "lift" }, lift.weeks.length ? formatLift(lift.weeks) : overview.feedback ? "What learning gained is measured once verdicts name documents as relevant." : "It has learned nothing yet: ask, then say whether the answer was right."),
    examples.length > 0 && make("section", {}, make("h2", {}, "Questions to begin with"), make("ul", { class: "examples" }, examples.map((text) =>
      make("li", {}, make("button", { type: "button", class: "example", click: () => onQuestion(text) }, makeName(text)))))) || "",
    session.may("write") ? make("details", { class: "add" }, make("summary", {}, "Add files"), makeDrop(again)) : "",
  );
}
