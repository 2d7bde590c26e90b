// Reasons as sentences: why a document stands where it does, and why it moved.

import { formatDay, make, makeName, shorten } from "./dom.js";

/** What an edge says, between the document that was reached before and the one it leads to. */
const EDGES = {
  mention: "which mentions it", mentioned_by: "which it mentions", likely_mention: "which mentions it",
  link: "which links to it", linked_by: "to which it links", sibling: "another part of the same document",
  shared_term: "which shares rare words with it", similar: "which is much like it", co_used: "which was used together with it",
  taught: "to which somebody connected it", learned: "which was used together with it",
};

/** The largest share of search, in words. */
const SHARES = {
  similarity: "its text is close to the question", information: "it has the words of the question", coverage: "it has words that the others lack",
  document: "its document has the words of the question", name: "the question names it", exact: "the question is its name", lexical: "it has the words of the question",
  mention: "a document near the question mentions it", pagerank: "many documents near the question lead to it", contrast: "it stands out from the rest",
  distinction: "it alone has the particulars of the question", agreement: "meaning and words both find it first", usage: "it is often used",
  bridge: "it has what a neighbour lacks", recency: "it is new", authority: "it has been given authority", hint: "it was suggested",
};

/** Who gave a verdict, as people say it. */
export const nameGiver = (given) => given.user ?? (given.source === "human" ? "somebody" : given.source ?? "somebody");

/** The precedents that speak for or against a document. */
export function findPrecedents(precedents, id) {
  return precedents.filter((past) => past.documents[id] && (past.stated || past.outcome));
}

export function describePrecedent(past, id, question) {
  const isFor = past.documents[id] > 0;
  const same = past.query === question;
  return [past.stated ? `Marked as ${isFor ? "used" : "not used"} for ` : `In an answer that was ${past.outcome > 0 ? "right" : "wrong"} for `, same ? "this question" : ["“", makeName(shorten(past.query, 120)), "”"], ` ${formatDay(past.created)}, by `, makeName(nameGiver(past)), "."];
}

/** Sentences for a document of an explained turn: what was learned first, then how it was found. */
export function describeDocument(found, { precedents, question, nameOf }) {
  const sentences = [];
  const past = findPrecedents(precedents, found.id);
  const share = found.contributions?.past_uses ?? 0;
  if (past.length && Math.abs(share) >= 0.05) {
    const first = past.find((one) => Math.sign(one.documents[found.id]) === Math.sign(share)) ?? past[0];
    sentences.push(make("span", { class: first.documents[found.id] > 0 ? "good strong" : "bad strong" }, describePrecedent(first, found.id, question), past.length > 1 && ` In all ${past.filter((one) => one.documents[found.id] > 0).length} for it, ${past.filter((one) => one.documents[found.id] < 0).length} against.`));
  } else if (share >= 0.05) sentences.push("It was used for questions like this one. ");
  else if (share <= -0.05) sentences.push("It was not used for questions like this one. ");
  const edge = found.path.at(-1);
  if (edge) sentences.push(["Reached through ", makeName(nameOf(edge.source)), `, ${EDGES[edge.kind] ?? `by an edge “${edge.kind}”`}. `]);
  else if (!past.length || Math.abs(share) < 0.05) {
    const [best] = Object.entries(found.contributions ?? {}).filter(([name, value]) => value > 0.05 && SHARES[name]).sort((a, b) => b[1] - a[1]);
    sentences.push(`Search found it${best ? `: ${SHARES[best[0]]}` : ""}. `);
  }
  return sentences;
}

/** Why a document moved: what more, and what less, of a feature says. */
const MOVES = {
  again: ["it was used for this question", "its past uses count less now"], passed: ["it was not used for this question", "what spoke against it counts less now"],
  episode: ["it was used for a question like this one", "its past uses count less now"], missed: ["it was not used for a question like this one", "what spoke against it counts less now"],
  inhibition: ["a correction holds it back", "a correction no longer holds it back"], learned: ["an edge that was learned leads to it", "an edge to it was unlearned"],
  trained: ["an edge to it became stronger", "an edge to it became weaker"], usage: ["it is used more often than others", "it is used less often than others"],
  decayed: ["failures lowered its reward", "failures weigh less on it now"],
};

/** Features that speak against a document. */
const AGAINST = new Set(["passed", "missed", "inhibition", "decayed"]);

/**
 * Why a document moved: the feature that learning changed most in the direction of its probability.
 * `verdict` is the own one; an answer that was called right as a whole names no document as used.
 */
export function describeMove(before, after, verdict) {
  if (after.id.startsWith("correction:") || after.id.startsWith("auto:")) return "it was taught by a correction";
  const rise = Math.sign(after.score - (before?.probability ?? 0));
  const changes = Object.keys(MOVES).map((name) => [name, (after.features?.[name] ?? 0) - (before?.features?.[name] ?? 0)]);
  const agree = changes.filter(([name, change]) => Math.abs(change) >= 0.001 && Math.sign(change) * (AGAINST.has(name) ? -1 : 1) === rise);
  if (!agree.length) return before ? "others moved" : "others left";
  const [name, change] = agree.reduce((one, other) => (Math.abs(other[1]) > Math.abs(one[1]) ? other : one));
  const named = [...(verdict?.used ?? []), ...(verdict?.unused ?? []), ...(verdict?.irrelevant ?? [])];
  if (change > 0 && (name === "again" || name === "passed") && verdict && !named.includes(after.id)) return `it was in an answer called ${name === "again" ? "right" : "wrong"}`;
  return MOVES[name][change > 0 ? 0 : 1];
}
