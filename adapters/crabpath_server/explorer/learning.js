// Learning: success over time, tiers over time, health, useful documents, maintenance.

import { get, makeLatest, post, session } from "./api.js";
import { act, confirmAction, formatNumber, formatTime, make, makeSvg, makeTable, makeTier, say } from "./dom.js";

const TIERS = ["reflex", "habitual", "dormant", "inhibitory"];
const WIDTH = 560;
const HEIGHT = 180;
const LEFT = 40;
const BOTTOM = 22;

/** A frame with lines at some values; `rise` places a share from 0 to 1. */
function makeChart(name, ticks, ...marks) {
  const rise = (share) => HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - 10);
  return makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": name, class: "chart" },
    ticks.map(([share, text]) => [
      makeSvg("line", { x1: LEFT, x2: WIDTH, y1: rise(share), y2: rise(share), class: "grid" }),
      makeSvg("text", { x: LEFT - 6, y: rise(share) + 4, "text-anchor": "end" }, text),
    ]),
    marks.map((mark) => mark(rise)));
}

const across = (place, count) => LEFT + 8 + (count < 2 ? 0 : (place / (count - 1)) * (WIDTH - LEFT - 20));

function drawSuccess(success) {
  const points = (rise) => success.map((part, place) => [across(place, success.length), rise(part.success)]);
  return makeChart("Share of feedback above 0, over time", [[0, "0"], [0.5, "50%"], [1, "100%"]],
    (rise) => makeSvg("polyline", { points: points(rise).map((point) => point.join()).join(" "), class: "curve" }),
    (rise) => points(rise).map(([x, y], place) => makeSvg("circle", { cx: x, cy: y, r: 3.5, class: "point" },
      makeSvg("title", {}, `${formatTime(success[place].until)}: ${Math.round(success[place].success * 100)}% of ${success[place].feedback}`))),
    () => [makeSvg("text", { x: LEFT, y: HEIGHT - 5 }, formatTime(success[0].since)),
      makeSvg("text", { x: WIDTH, y: HEIGHT - 5, "text-anchor": "end" }, formatTime(success.at(-1).until))]);
}

/** Bars, one for each measurement: shares of the tiers, on top of each other. */
function drawTiers(tiers) {
  const wide = Math.min(40, (WIDTH - LEFT) / tiers.length - 2);
  return makeChart("Share of edges by tier, over time", [[0, "0"], [0.5, "50%"], [1, "100%"]], (rise) =>
    tiers.map((measured, place) => {
      const total = TIERS.reduce((sum, tier) => sum + (measured.edges[tier] ?? 0), 0) || 1;
      let below = 0;
      return TIERS.map((tier) => {
        const share = (measured.edges[tier] ?? 0) / total;
        const bar = makeSvg("rect", {
          x: LEFT + 4 + (place * (WIDTH - LEFT - 8)) / tiers.length, y: rise(below + share), width: Math.max(1, wide), height: rise(below) - rise(below + share), class: `bar fill-${tier}`,
        }, makeSvg("title", {}, `turn ${measured.turn}: ${measured.edges[tier] ?? 0} ${tier}`));
        below += share;
        return bar;
      });
    }));
}

/** Where a value lies beside its healthy range. */
function drawRange(metric) {
  if (metric.value == null) return "";
  const most = Math.max(metric.high, metric.value, 1e-9) * 1.15;
  const place = (value) => 4 + (value / most) * 112;
  return makeSvg("svg", { viewBox: "0 0 120 14", class: "range", "aria-hidden": "true" },
    makeSvg("line", { x1: 4, x2: 116, y1: 7, y2: 7, class: "grid" }),
    makeSvg("line", { x1: place(metric.low), x2: place(metric.high), y1: 7, y2: 7, class: "healthy" }),
    makeSvg("circle", { cx: place(metric.value), cy: 7, r: 4, class: metric.in_range === false ? "point bad" : "point" }));
}

const judge = (metric) => (metric.in_range == null ? "not judged" : metric.in_range ? "in range" : metric.value < metric.low ? "too low" : "too high");

export function makeLearning(section) {
  const place = make("div", {});
  const plan = make("div", { class: "plan" });
  const lift = make("div", {});
  const latest = makeLatest();
  const latestLift = makeLatest();

  function tabulateUse(caption, found) {
    return makeTable(caption, ["Document", "Used", "Not used", "Usefulness"], found.map((use) => [
      make("a", { href: `#graph/${encodeURIComponent(use.id)}` }, use.title || use.id), use.wins, use.losses, use.usefulness,
    ]));
  }

  async function readLift() {
    const found = await latestLift(get("learning/lift"));
    if (!found) return;
    const rows = found.weeks;
    lift.replaceChildren(rows.length
      ? makeTable("What learning gained", ["Week", "Labels", "Turns", "Wins", "Losses", "Before any lesson", "Learned", "Gain", "95%"], rows.map((row) => [
        row.group, row.labels, row.turns, row.wins, row.losses, formatNumber(row.frozen, 3), formatNumber(row.learned, 3),
        make("span", { class: row.low > 0 ? "good" : row.high < 0 ? "bad" : "" }, formatNumber(row.lift, 3)),
        row.low == null ? "too few" : `${formatNumber(row.low, 3)} to ${formatNumber(row.high, 3)}`,
      ]))
      : make("p", { class: "dim" }, "What learning gained is shown once feedback names relevant documents, or use of what both rankings drafted."));
  }

  async function read() {
    const report = await latest(get("learning"));
    if (!report) return;
    place.replaceChildren(
      make("div", { class: "columns even" },
        make("section", {}, make("h2", {}, "Success over time"), report.success.length
          ? [drawSuccess(report.success), make("details", {}, make("summary", {}, "As a table"), makeTable("Success over time", ["From", "To", "Feedback", "Mean outcome", "Success"],
            report.success.map((part) => [formatTime(part.since), formatTime(part.until), part.feedback, part.outcome, part.success])))]
          : make("p", { class: "dim" }, "No feedback yet: give a thumb to a turn.")),
        make("section", {}, make("h2", {}, "Tiers over time"), drawTiers(report.tiers),
          make("p", { class: "legend" }, TIERS.map(makeTier)),
          make("details", {}, make("summary", {}, "As a table"), makeTable("Edges by tier", ["When", "Turn", ...TIERS],
            report.tiers.map((measured) => [formatTime(measured.at), measured.turn, ...TIERS.map((tier) => measured.edges[tier] ?? 0)]))))),
      makeTable("Health", ["Metric", "Value", "", "Healthy range", "Verdict", "What was counted"], report.health.map((metric) => [
        metric.name.replaceAll("_", " "), formatNumber(metric.value, 3), drawRange(metric), `${formatNumber(metric.low, 2)} to ${formatNumber(metric.high, 2)}`,
        make("span", { class: metric.in_range === false ? "bad" : metric.in_range ? "good" : "dim" }, judge(metric)), metric.note,
      ])),
      make("div", { class: "columns even" }, tabulateUse("Most useful documents", report.most_useful), tabulateUse("Least useful documents", report.least_useful)),
    );
  }

  function showPlan(report) {
    const changed = report.steps.reduce((sum, step) => sum + step.changed, 0);
    plan.replaceChildren(makeTable(
      report.dry_run ? `Maintenance would change ${changed} things` : `Maintenance changed ${changed} things`,
      ["Step", "Looked at", report.dry_run ? "Would change" : "Changed", "Details"],
      report.steps.map((step) => [step.step, step.looked, step.changed, Object.entries(step.detail).map(([name, count]) => `${name.replaceAll("_", " ")} ${count}`).join(", ")]),
    ));
  }

  const check = act(async () => {
    say("Looking …");
    showPlan(await get("maintenance"));
    say("Nothing was changed.");
  });
  const run = act(async () => {
    if (!(await confirmAction("Run maintenance in all namespaces now? Weights that have faded are dropped, old records are compacted.", "Run"))) return;
    say("Maintenance runs …");
    showPlan(await post("maintenance", {}));
    await read();
    say("Maintenance is done.");
  });
  const upkeep = make("section", {}, make("h2", {}, "Maintenance"),
    make("p", { class: "line" }, make("button", { type: "button", class: "quiet", click: check }, "What would it do?"), make("button", { type: "button", click: run }, "Run it")), plan);
  section.append(place, lift, upkeep);

  return {
    async show() {
      upkeep.hidden = !session.may("admin");
      await Promise.all([read(), readLift()]);
    },
    hide() {},
    reset() {
      latest();
      latestLift();
      place.replaceChildren();
      lift.replaceChildren();
      plan.replaceChildren();
    },
  };
}
