// Learning: what it gained, its latest lessons and by whom, documents that are never right, health.

import { get, makeLatest, post, session } from "./api.js";
import { confirmAction, count, formatNumber, formatTime, make, makeButton, makeLink, makeName, makeSkeleton, makeSvg, makeTable, makeTier, say, shorten } from "./dom.js";
import { linkTo } from "./place.js";
import { nameGiver } from "./reasons.js";

const TIERS = ["reflex", "habitual", "dormant", "inhibitory"];
const WIDTH = 560;
const HEIGHT = 180;
const LEFT = 46;
const BOTTOM = 22;
const LESSONS = 12;

/** What is wrong where a metric has left its range, and what helps. */
const WRONG = {
  avg_nodes_fired_per_query: ["Hardly any walk gets beyond what search finds: the documents have few edges.", "Walks reach too many documents, which costs time."],
  cross_file_edge_pct: ["Documents are hardly connected with each other.", "Nearly all edges join different documents."],
  dormant_pct: ["Hardly any edge fades: what was learned long ago weighs as much as what is new.", "Most of what was learned has faded: give more verdicts, or let it fade more slowly."],
  reflex_pct: ["No edge has become a habit yet.", "Too many edges are followed without a thought: maintenance lowers them."],
  context_compression: ["Answers hold next to nothing of the documents.", "Answers return a large part of all documents: ask for fewer."],
  proto_promotion_rate: ["Documents that are used together do not become connected.", "Documents are connected after very few uses."],
  reconvergence_rate: ["Split documents keep growing together again.", "Documents were split that are used together: merge them."],
  orphan_nodes: ["Documents are missing in the vector index.", "Documents are missing in the vector index, and search does not find them: crabpath doctor --repair."],
};

const formatInterval = ({ low, high }) => (low == null ? "too few" : `${formatNumber(low, 3)} to ${formatNumber(high, 3)}`);

/** What learning gained, as a sentence. */
export function formatLift(weeks) {
  const turns = weeks.reduce((sum, week) => sum + week.turns, 0);
  const mean = weeks.reduce((sum, week) => sum + week.lift * week.turns, 0) / turns;
  const wins = weeks.reduce((sum, week) => sum + week.wins, 0);
  const losses = weeks.reduce((sum, week) => sum + week.losses, 0);
  const verb = mean > 0.0005 ? "improved" : mean < -0.0005 ? "worsened" : "did not change";
  return `Learning ${verb} the ranking${Math.abs(mean) > 0.0005 ? ` by ${Math.abs(mean).toFixed(3)} of 1 (nDCG)` : ""} over ${count(turns, "judged question")}: better for ${wins}, worse for ${losses}, the same for ${turns - wins - losses}.`;
}

/** A frame with lines at some values; `rise` places a value between the lowest and highest. */
function makeChart(name, [low, high], ticks, ...marks) {
  const rise = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low || 1)) * (HEIGHT - BOTTOM - 10);
  return makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": name, class: "chart" },
    ticks.map(([value, text]) => [
      makeSvg("line", { x1: LEFT, x2: WIDTH, y1: rise(value), y2: rise(value), class: "grid" }),
      makeSvg("text", { x: LEFT - 6, y: rise(value) + 4, "text-anchor": "end" }, text),
    ]),
    marks.map((mark) => mark(rise)));
}

const across = (place, number) => LEFT + 8 + (number < 2 ? (WIDTH - LEFT - 20) / 2 : (place / (number - 1)) * (WIDTH - LEFT - 20));

function drawSuccess(success) {
  const points = (rise) => success.map((part, place) => [across(place, success.length), rise(part.success)]);
  return makeChart("Share of verdicts above 0, over time", [0, 1], [[0, "0"], [0.5, "50%"], [1, "100%"]],
    (rise) => makeSvg("polyline", { points: points(rise).map((point) => point.join()).join(" "), class: "curve" }),
    (rise) => points(rise).map(([x, y], place) => makeSvg("circle", { cx: x, cy: y, r: 3.5, class: "point" },
      makeSvg("title", {}, `${formatTime(success[place].until)}: ${Math.round(success[place].success * 100)}% of ${success[place].feedback}`))),
    () => [makeSvg("text", { x: LEFT, y: HEIGHT - 5 }, formatTime(success[0].since)),
      makeSvg("text", { x: WIDTH, y: HEIGHT - 5, "text-anchor": "end" }, formatTime(success.at(-1).until))]);
}

/** A point for each week, with its 95 % interval where there are enough turns. */
function drawLift(weeks) {
  const least = Math.min(0, ...weeks.map((week) => week.low ?? week.lift));
  const most = Math.max(0.05, ...weeks.map((week) => week.high ?? week.lift));
  return makeChart("What learning gained, by week", [least, most], [...new Set([least, 0, most])].map((value) => [value, value.toFixed(2)]),
    (rise) => weeks.map((week, place) => {
      const x = across(place, weeks.length);
      return [
        week.low != null && makeSvg("line", { x1: x, x2: x, y1: rise(week.low), y2: rise(week.high), class: "interval" }),
        makeSvg("circle", { cx: x, cy: rise(week.lift), r: 5, class: week.low > 0 ? "point good" : week.high < 0 ? "point bad" : "point" }, makeSvg("title", {}, `${week.group}: ${week.lift.toFixed(3)}`)),
        makeSvg("text", { x, y: HEIGHT - 5, "text-anchor": "middle" }, week.group),
      ];
    }));
}

/** Bars, one for each measurement: shares of the tiers, on top of each other. */
function drawTiers(tiers) {
  const wide = Math.min(40, (WIDTH - LEFT) / tiers.length - 2);
  return makeChart("Share of edges by tier, over time", [0, 1], [[0, "0"], [0.5, "50%"], [1, "100%"]], (rise) =>
    tiers.map((measured, place) => {
      const total = TIERS.reduce((sum, tier) => sum + (measured.edges[tier] ?? 0), 0) || 1;
      let below = 0;
      return TIERS.map((tier) => {
        const share = (measured.edges[tier] ?? 0) / total;
        const bar = makeSvg("rect", {
          x: LEFT + 4 + (place * (WIDTH - LEFT - 8)) / tiers.length, y: rise(below + share), width: Math.max(1, wide), height: rise(below) - rise(below + share), class: `bar tier-${tier}`,
        }, makeSvg("title", {}, `turn ${measured.turn}: ${measured.edges[tier] ?? 0} ${tier}`));
        below += share;
        return bar;
      });
    }));
}

export function makeLearning(section) {
  const gain = make("section", { class: "card", "aria-label": "What learning gained" });
  const shadow = make("section", { class: "card", "aria-label": "Shadow", hidden: true });
  const lessons = make("section", { class: "card", "aria-label": "Latest lessons" });
  const place = make("div", {});
  const plan = make("div", { class: "plan" });
  const latest = makeLatest();

  const tabulateUse = (caption, found) => makeTable(caption, ["Document", "Used", "Not used"], found.map((use) => [makeLink(use.id, use.title), use.wins, use.losses]));

  function showGain(weeks, success) {
    gain.replaceChildren(make("h2", {}, "What did it learn, and was that right?"),
      make("p", { class: "lift" }, weeks.length ? formatLift(weeks) : success.length
        ? "What learning gained is measured once verdicts name documents as relevant, after the first lesson." : "No verdict yet: ask something, and say whether the answer was right."),
      make("div", { class: "columns even" },
        weeks.length ? make("div", {}, make("h3", {}, "Gain by week"), drawLift(weeks), make("details", {}, make("summary", {}, "As a table"),
          makeTable("What learning gained", ["Week", "Verdicts", "Questions", "Better", "Worse", "Before any lesson", "Learned", "Gain", "95%"], weeks.map((row) => [
            row.group, row.labels, row.turns, row.wins, row.losses, formatNumber(row.frozen, 3), formatNumber(row.learned, 3),
            make("span", { class: row.low > 0 ? "good" : row.high < 0 ? "bad" : "" }, formatNumber(row.lift, 3)),
            formatInterval(row)])))) : "",
        success.length ? make("div", {}, make("h3", {}, "Answers that were right"), drawSuccess(success), make("details", {}, make("summary", {}, "As a table"),
          makeTable("Answers that were right", ["From", "To", "Verdicts", "Mean outcome", "Right"], success.map((part) => [formatTime(part.since), formatTime(part.until), part.feedback, part.outcome, part.success])))) : ""));
  }

  function showShadow(weeks) {
    shadow.hidden = weeks.length === 0;
    const sum = (name) => weeks.reduce((total, week) => total + week[name], 0);
    shadow.replaceChildren(make("h2", {}, "In the shadow of your retriever"),
      make("p", { class: "lift" }, `Of ${count(sum("documents"), "document")} that helped in ${count(sum("turns"), "judged question")}, the memory would have placed ${sum("higher")} higher, ${sum("lower")} lower, and left out ${sum("missing")}.`),
      make("p", { class: "dim" }, "What only the memory would have shown was not seen, so it counts for nobody."),
      make("details", {}, make("summary", {}, "By week"), makeTable("The memory beside your retriever", ["Week", "Questions", "Documents", "Higher", "Equal", "Lower", "Left out", "Gain", "95%"], weeks.map((row) => [
        row.group, row.turns, row.documents, row.higher, row.equal, row.lower, row.missing, formatNumber(row.gain, 3),
        formatInterval(row)]))));
  }

  function showLessons(feedback, turns) {
    const asked = new Map(turns.map((turn) => [turn.id, turn]));
    const standing = feedback.filter((one) => one.status === "applied" || one.status === "waiting");
    const givers = new Map();
    for (const one of standing) givers.set(nameGiver(one), [...(givers.get(nameGiver(one)) ?? []), one]);
    const undo = (one) => makeButton("Undo", async () => {
      const receipt = await post("undo", { feedback_id: one.feedback_id });
      await read();
      say(`Feedback ${receipt.status}.`);
    }, { class: "small" });
    const undoAll = (name, given) => makeButton("Undo all of this user", async () => {
      if (!(await confirmAction(`Undo all that ${name} has taught the namespace ${session.namespace}? What was learned from others stays.`, "Undo all"))) return;
      const { receipts } = await post("undo/user", { user: given[0].user });
      await read();
      say(`${count(receipts.filter((one) => one.status === "undone").length, "verdict")} of ${name} undone.`);
    }, { class: "danger small" });
    const share = (given) => `${given.filter((one) => one.outcome > 0).length} ✓  ${given.filter((one) => one.outcome < 0).length} ✗`;
    lessons.replaceChildren(make("h2", {}, "Latest lessons"),
      standing.length ? make("ul", { class: "lessons" }, standing.slice(0, LESSONS).map((one) => {
        const turn = asked.get(one.turn_id);
        const marks = [...(one.used ?? []).map(() => "used"), ...(one.unused ?? []).map(() => "not used"), ...(one.irrelevant ?? []).map(() => "wrong")];
        const tally = [...new Set(marks)].map((mark) => `${marks.filter((other) => other === mark).length} ${mark}`).join(", ");
        return make("li", {}, make("span", { class: one.outcome > 0 ? "good" : "bad" }, one.outcome > 0 ? "✓" : one.outcome < 0 ? "✗" : "·"), " ",
          one.turn_id ? make("a", { href: linkTo("turns", one.turn_id) }, makeName(turn ? turn.query : "a question")) : "an edge that was set",
          one.correction && make("q", { dir: "auto" }, shorten(one.correction, 160)),
          make("span", { class: "dim" }, " ", makeName(nameGiver(one)), `, ${formatTime(one.created)}${tally ? `; ${tally}` : ""} `), session.mayUndo(one) && undo(one));
      })) : make("p", { class: "dim" }, "None yet."),
      givers.size > 0 && makeTable("Who taught it", ["Giver", "Latest verdicts", "Last", "Do"], [...givers].map(([name, given]) => [
        makeName(name), share(given), formatTime(given[0].created), session.may("admin") && given[0].user != null ? undoAll(name, given) : ""])) || "");
  }

  function showRest(report) {
    const wrong = report.health.filter((metric) => metric.in_range === false);
    const never = report.least_useful.filter((use) => use.wins < 0.5 && use.losses >= 2);
    place.replaceChildren(
      make("section", { class: "card" }, make("h2", {}, "Documents"),
        make("div", { class: "columns even" },
          tabulateUse("Never right", never), tabulateUse("Most useful documents", report.most_useful))),
      make("section", { class: "card", "aria-label": "Health" }, make("h2", {}, "Health"),
        wrong.length ? make("ul", {}, wrong.map((metric) => make("li", {}, (WRONG[metric.name] ?? [metric.name, metric.name])[metric.value < metric.low ? 0 : 1]))) : make("p", {}, "Nothing is wrong."),
        make("details", {}, make("summary", {}, "All measurements"),
          makeTable("Health", ["Metric", "Value", "Healthy range", "Verdict", "What was counted"], report.health.map((metric) => [
            metric.name.replaceAll("_", " "), formatNumber(metric.value, 3), `${formatNumber(metric.low, 2)} to ${formatNumber(metric.high, 2)}`,
            make("span", { class: metric.in_range === false ? "bad" : metric.in_range ? "good" : "dim" }, metric.in_range == null ? "not judged" : metric.in_range ? "in range" : metric.value < metric.low ? "too low" : "too high"), metric.note])),
          make("h3", {}, "Edges by tier, over time"), drawTiers(report.tiers), make("p", { class: "legend" }, TIERS.map(makeTier)),
          makeTable("Edges by tier", ["When", "Turn", ...TIERS], report.tiers.map((measured) => [formatTime(measured.at), measured.turn, ...TIERS.map((tier) => measured.edges[tier] ?? 0)])))),
    );
  }

  async function read() {
    if (!gain.firstChild) gain.replaceChildren(makeSkeleton(6));
    const found = await latest(Promise.all([get("learning"), get("learning/lift").catch(() => ({ weeks: [], shadow: [] })), get("feedback", { limit: 200 }), get("turns", { limit: 300 })]));
    if (!found) return;
    const [report, lift, { feedback }, { turns }] = found;
    showGain(lift.weeks, report.success);
    showShadow(lift.shadow);
    showLessons(feedback, turns);
    showRest(report);
  }

  function showPlan(report) {
    const changed = report.steps.reduce((sum, step) => sum + step.changed, 0);
    plan.replaceChildren(makeTable(
      report.dry_run ? `Maintenance would change ${changed} things` : `Maintenance changed ${changed} things`,
      ["Step", "Looked at", report.dry_run ? "Would change" : "Changed", "Details"],
      report.steps.map((step) => [step.step, step.looked, step.changed, Object.entries(step.detail).map(([name, number]) => `${name.replaceAll("_", " ")} ${number}`).join(", ")]),
    ));
  }

  const check = async () => {
    say("Looking …");
    showPlan(await get("maintenance"));
    say("Nothing was changed.");
  };
  const run = async () => {
    if (!(await confirmAction("Run maintenance in all namespaces now? Weights that have faded are dropped, old records are compacted.", "Run"))) return;
    say("Maintenance runs …");
    showPlan(await post("maintenance", {}));
    await read();
    say("Maintenance is done.");
  };
  const upkeep = make("section", { class: "card" }, make("h2", {}, "Maintenance"), make("p", { class: "line" }, makeButton("What would it do?", check), makeButton("Run it", run)), plan);
  section.append(gain, shadow, lessons, place, upkeep);

  return {
    async show() {
      upkeep.hidden = !session.may("admin");
      await read();
    },
    hide() {},
    reset() {
      latest();
      for (const part of [gain, shadow, lessons, place, plan]) part.replaceChildren();
    },
  };
}
