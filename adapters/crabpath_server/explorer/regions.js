// Regions: where the documents lie, and which kind of step succeeds where.

import { get, makeLatest } from "./api.js";
import { formatNumber, label, make, makeLink, makeName, makeSkeleton, makeTable, sayError, shorten } from "./dom.js";
import { Drawing } from "./drawing.js";
import { goTo } from "./place.js";

const HEIGHT = 420;
const NAME = 26; // longest name on the map, in characters

/** Success as a class of colour, and as a word. */
const judge = (quality) => (quality == null ? "dim" : quality >= 0.6 ? "good" : quality <= 0.4 ? "bad" : "mixed");

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

  function compose(width) {
    const spread = (name) => {
      const values = regions.map((region) => region[name]);
      const low = Math.min(...values);
      return [low, Math.max(...values) - low || 1];
    };
    const [left, wide] = spread("x");
    const [low, high] = spread("y");
    const largest = Math.max(...regions.map((region) => region.size), 1);
    const room = Math.min(180, width * 0.3); // for names at the right
    const nodes = byUse().map((region) => ({
      id: region.region, x: 24 + ((region.x - left) / wide) * (width - 24 - room), y: 24 + ((region.y - low) / high) * (HEIGHT - 48),
      text: shorten(region.title || region.region, NAME), tag: region.quality == null ? "" : `${Math.round(region.quality * 100)}%`,
      size: 4 + 12 * Math.sqrt(region.size / largest), colour: judge(region.quality), shape: region.quality == null ? "ring" : "disc",
    }));
    const named = []; // where there is room for a name, the most used first
    for (const node of nodes) {
      const near = (other) => Math.abs(node.y - other.y) < 18 && node.x - other.x < NAME * 7 && other.x - node.x < NAME * 7;
      if (named.some(near)) node.text = node.tag = "";
      else named.push(node);
    }
    return { height: HEIGHT, bare: true, nodes, edges: [] };
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
    drawing = new Drawing("Map of the regions: the table below says the same.", compose, (id) => goTo("graph", id));
    place.replaceChildren(
      make("p", { class: "dim" }, `${regions.length} regions; near each other what is similar. ● size by documents, with the share of successes where something was learned; ○ nothing learned yet.`),
      drawing.place,
      makeTable("Regions", ["Region", "Documents", "Visits", "Success", "Success by kind of step", "Leads to"],
        byUse().map((region) => [
          makeLink(region.region, region.title), region.size, formatNumber(region.arrivals, 1),
          region.quality == null ? "" : make("span", { class: judge(region.quality) }, region.quality.toFixed(2)),
          region.actions.length && make("ul", { class: "plain" }, region.actions.slice(0, 4).map((action) => make("li", {}, `${action.action} ${action.success.toFixed(2)} of ${formatNumber(action.trials, 1)}`))) || "",
          region.next_regions.length > 0 && make("ul", { class: "plain" }, region.next_regions.slice(0, 2).map((next) => make("li", {}, makeName(titleOf(next.region), { class: "name whole" }), ` ${Math.round(next.share * 100)}%`))) || "",
        ])),
    );
    drawing.start();
  }

  const byUse = () => [...regions].sort((a, b) => b.arrivals - a.arrivals || b.size - a.size);
  const titleOf = (id) => shorten(regions.find((region) => region.region === id)?.title || id, 24);

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
