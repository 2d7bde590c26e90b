// Regions: where the documents lie, and which kind of step succeeds where.

import { get, makeLatest } from "./api.js";
import { count, formatNumber, label, make, makeLink, makeName, makeSkeleton, makeTable, sayError } from "./dom.js";
import { Drawing, explainShares, rateShare } from "./drawing.js";
import { goTo } from "./place.js";

const COVERED = 0.5; // of the map
const NARROW = 600; // pixels, below which discs have numbers for names
const KNOWN = 5; // judged visits, below which a share says little
const rate = (region) => rateShare(region.quality, region.arrivals >= KNOWN);
const listTried = (region) => region.actions.filter((action) => action.trials >= 0.05); // less is written as 0
const isJudged = (region) => region.quality != null && region.arrivals > 0;

export function makeRegions(section) {
  const level = make("select", { name: "level" });
  const place = make("div", {});
  let drawing = null;
  let regions = [];
  const latest = makeLatest();

  function stop() {
    drawing?.stop();
    drawing = null;
  }

  /** Areas are by documents; what is similar is near, as far as no region covers another. */
  function compose(width) {
    const height = width > 700 ? 520 : 620;
    const rank = (name) => {
      const sorted = regions.map((region) => region[name]).sort((a, b) => a - b);
      return (region) => (sorted.indexOf(region[name]) + 0.5) / sorted.length; // a few far ones would leave the map empty
    };
    const [across, down] = [rank("x"), rank("y")];
    const unit = Math.sqrt((width * height * COVERED) / Math.PI / regions.reduce((sum, region) => sum + Math.max(1, region.size), 0));
    const nodes = byUse().map((region, place) => {
      const size = unit * Math.sqrt(Math.max(1, region.size));
      const share = isJudged(region) ? `${Math.round(region.quality * 100)}% of ${formatNumber(region.arrivals, 1)}` : "";
      return {
        id: region.region, text: nameOf(region), size, colour: `${rate(region)} region`, ring: !isJudged(region),
        x: size + across(region) * (width - 2 * size), y: size + down(region) * (height - 2 * size),
        words: width < NARROW ? [String(place + 1)] : region.words.length ? region.words : [nameOf(region)], last: width < NARROW ? "" : share, more: [count(region.size, "document"), share && `success ${share}`].filter(Boolean).join(", "),
      };
    });
    for (let round = 0; round < 150; round += 1) {
      for (const [number, one] of nodes.entries()) {
        for (const other of nodes.slice(number + 1)) {
          const [x, y] = [other.x - one.x || 0.1, other.y - one.y];
          const short = (one.size + other.size + 4) / Math.hypot(x, y) - 1;
          if (short <= 0) continue;
          for (const [node, sign] of [[one, -0.5], [other, 0.5]]) {
            node.x = Math.min(width - node.size, Math.max(node.size, node.x + sign * x * short));
            node.y = Math.min(height - node.size, Math.max(node.size, node.y + sign * y * short));
          }
        }
      }
    }
    return { height, nodes, edges: [] };
  }

  async function read(parameters) {
    if (!place.firstChild) place.replaceChildren(makeSkeleton(8));
    const found = await latest(get("regions", parameters));
    if (!found) return;
    stop();
    regions = found.regions;
    level.replaceChildren(...found.levels.map((number) => make("option", { value: number, selected: number === found.level }, String(number))));
    if (!regions.length) {
      place.replaceChildren(make("p", { class: "dim" }, "This memory is too small for regions."));
      return;
    }
    drawing = new Drawing("Map of the regions: the table below says the same.", compose, { onNode: (id) => goTo("graph", id), isMap: true });
    place.replaceChildren(
      make("p", { class: "dim" }, `${regions.length} regions, named by the words that tell them from the others. Similar ones are near each other; their area says how many documents they have.`),
      make("section", { class: "card", "aria-label": "Map" },
        make("div", { class: "line legend" }, "Share of successes: ", explainShares(`fewer than ${KNOWN} judged visits`, "nothing learned yet"), drawing.zoom), drawing.place),
      makeTable("Regions", ["Region", "Middle", "Documents", "Visits", "Success", "Success by kind of step", "Leads to"],
        byUse().map((region, place) => [
          makeName(`${place + 1}. ${nameOf(region)}`, { class: "name strong" }), makeLink(region.region, region.title), region.size, formatNumber(region.arrivals, 1),
          isJudged(region) && make("span", { class: rate(region) }, region.quality.toFixed(2)) || "",
          listTried(region).length > 0 && make("ul", { class: "plain" }, listTried(region).slice(0, 4).map((action) => make("li", {}, `${action.action} ${action.success.toFixed(2)} of ${formatNumber(action.trials, 1)}`))) || "",
          region.next_regions.length > 0 && make("ul", { class: "plain" }, region.next_regions.slice(0, 2).map((next) => make("li", {}, makeName(titleOf(next.region), { class: "name whole" }), ` ${Math.round(next.share * 100)}%`))) || "",
        ])),
    );
    drawing.start();
  }

  const byUse = () => [...regions].sort((a, b) => b.arrivals - a.arrivals || b.size - a.size);
  const nameOf = (region) => region.words.join(", ") || region.title || region.region;
  const titleOf = (id) => nameOf(regions.find((region) => region.region === id) ?? { words: [], region: id });

  level.addEventListener("change", () => read({ level: level.value }).catch(sayError));
  section.append(make("form", { class: "line", submit: (event) => event.preventDefault() }, label("Level", level)), place);

  return {
    show: () => read(),
    hide: stop,
    reset() {
      latest();
      stop();
      place.replaceChildren();
    },
  };
}
