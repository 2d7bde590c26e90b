// Drawings of graphs in SVG: Tab and arrows reach their nodes. Every view has a table that says the same.

import { make, makeButton, makeSvg, shorten, straighten } from "./dom.js";

const ROW = 26; // pixels between two rows: a fingertip
const CHARACTER = 6.8; // pixels, on average
const BOLD = 7.7;
const LINE = 16; // height of a label, in pixels
const LONGEST = 26; // characters of a label on a map
const REACH = 2.5; // lengths of an edge within which points push each other away
const MOST = 8; // times that a map is enlarged

/** Width of an edge by tier, in pixels. */
export const WIDTHS = { reflex: 4.5, habitual: 3, dormant: 1.5, inhibitory: 2 };

/**
 * One graph. `compose(width)` returns its scene for a width in pixels:
 *   height, and in the order of their importance
 *   nodes: {id, x, y, text, tag, size, colour (a class), ring, strong, more, words (in a disc that grows with the map), last (below them)}
 *   edges: {source, target, colour (a class), size, shape ("tree", "curve", "arrow" or "bar")}.
 * In a map labels stand where there is room, and it is enlarged and moved; else every node has a row.
 */
export class Drawing {
  constructor(name, compose, { onNode, onPoint = () => {}, isMap = false }) {
    this.compose = compose;
    this.onNode = onNode;
    this.onPoint = onPoint;
    this.isMap = isMap;
    this.view = { zoom: 1, x: 0, y: 0 };
    this.nodes = new Map();
    this.lines = [];
    this.width = 0;
    this.svg = makeSvg("svg", { role: "group", "aria-label": name, keydown: (event) => this.press(event) });
    this.place = make("div", { class: "drawing" }, this.svg);
    this.zoom = make("span", { class: "zoom", role: "group", "aria-label": "Size of the drawing" },
      [["+", "Larger", 1.5], ["−", "Smaller", 1 / 1.5], ["⤢", "All of it", 0]].map(([sign, name, factor]) => makeButton(sign, () => this.enlarge(factor), { "aria-label": name, title: name })));
    this.resized = new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - this.width) > 1) this.draw();
    });
    if (isMap) this.listen();
  }

  /** Draw, after the place has got into the page. */
  start() {
    this.resized.observe(this.place);
    this.draw();
  }

  stop() {
    this.resized.disconnect();
  }

  draw() {
    const width = this.place.clientWidth;
    if (!width) return;
    const focused = this.svg.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    const scene = this.compose(width);
    this.width = width;
    this.height = scene.height;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${scene.height}`);
    this.svg.style.height = `${scene.height}px`;
    this.nodes = new Map(scene.nodes.map((node) => [node.id, { ...node, element: this.makeNode(node) }]));
    this.lines = scene.edges.map((edge) => ({ ...edge, element: makeSvg("path", { class: `edge ${edge.shape} ${edge.colour}`, "stroke-width": edge.size }) }));
    const elements = [...this.nodes.values()].map((node) => node.element);
    const buttonOf = (id) => this.nodes.get(id)?.element.children[1];
    (buttonOf(focused) ?? elements[0]?.children[1])?.setAttribute("tabindex", 0);
    this.svg.replaceChildren(...this.lines.map((line) => line.element), ...(this.isMap ? elements.reverse() : elements)); // what matters most lies on top
    this.enlarge(1);
    this.light(this.lit);
    buttonOf(focused)?.focus({ preventScroll: true });
  }

  /** A button with a name of its own, and beside it what is seen. */
  makeNode(node) {
    const point = (id) => () => this.onPoint(id);
    const text = straighten(node.text);
    return makeSvg("g", { class: `node ${node.colour}${node.ring ? " ring" : ""}${node.strong ? " strong" : ""}`, click: () => this.dragged || this.onNode(node.id), mouseenter: point(node.id), mouseleave: point(null) },
      makeSvg("title", {}, text),
      makeSvg("g", { role: "button", tabindex: -1, "data-id": node.id, "aria-label": [text, node.tag, node.more].filter(Boolean).join(", "), "aria-current": node.isChosen ? "true" : null, focus: () => this.reveal(node.id), blur: point(null) },
        makeSvg("circle", { class: "touch", r: Math.max(ROW / 2, node.size) }), makeSvg("circle", { class: "disc", r: node.size })),
      node.words ? makeSvg("text", { class: "words" }, [...node.words, node.last].map(() => makeSvg("tspan", { x: 0 })))
        : makeSvg("text", { class: "label" }, makeSvg("tspan", { class: "name" }), node.tag && makeSvg("tspan", { class: node.tagColour ?? node.colour, dx: 8 })));
  }

  /** Enlarge around a point of the place, by default the chosen node or else the middle; by 0: all is seen. */
  enlarge(factor, ...point) {
    const [x, y] = point.length ? point : this.findMiddle();
    const zoom = Math.min(MOST, Math.max(1, this.view.zoom * factor));
    const ratio = zoom / this.view.zoom;
    this.move(zoom, x - (x - this.view.x) * ratio, y - (y - this.view.y) * ratio);
    return ratio !== 1;
  }

  /** Where the chosen node is, if it is seen; else the middle. */
  findMiddle() {
    const { zoom, x, y } = this.view;
    const chosen = [...this.nodes.values()].find((node) => node.isChosen);
    const [left, top] = chosen ? [chosen.x * zoom + x, chosen.y * zoom + y] : [-1, -1];
    return left >= 0 && top >= 0 && left <= this.width && top <= this.height ? [left, top] : [this.width / 2, this.height / 2];
  }

  move(zoom, x, y) {
    const bound = (value, size) => Math.min(0, Math.max(size * (1 - zoom), value));
    this.view = { zoom, x: bound(x, this.width), y: bound(y, this.height) };
    this.svg.classList.toggle("enlarged", zoom > 1);
    for (const node of this.nodes.values()) {
      node.left = node.x * zoom + this.view.x;
      node.top = node.y * zoom + this.view.y;
      node.element.setAttribute("transform", `translate(${node.left} ${node.top})`);
      if (node.words) this.write(node, node.size * zoom);
    }
    for (const line of this.lines) line.element.setAttribute("d", this.trace(line));
    this.name();
  }

  /** Write words into a disc, one below the other, as many as there is room for. */
  write(node, size) {
    const [, { lastChild: disc }, { children }] = node.element.children;
    disc.setAttribute("r", size);
    const most = Math.max(1, Math.floor((1.5 * size) / (LINE - 1)) - Boolean(node.last));
    const texts = node.words.slice(0, most);
    const bottom = texts.length - (node.last ? 0 : 1);
    for (const [place, line] of [...children].entries()) {
      const isLast = line === line.parentNode.lastChild;
      const y = ((isLast ? texts.length : place) - bottom / 2) * (LINE - 1);
      const half = Math.sqrt(Math.max(0, size ** 2 - (Math.abs(y) + 5) ** 2));
      line.setAttribute("y", y + 4);
      line.textContent = shorten(straighten(isLast ? node.last : texts[place] ?? ""), Math.floor((2 * half) / (place ? CHARACTER : BOLD)));
    }
  }

  /** The path of an edge; heads are strokes, so that they have its colour. */
  trace({ source, target, shape, size }) {
    const [from, to] = [this.nodes.get(source), this.nodes.get(target)];
    if (shape === "tree") return `M${from.left} ${from.top}C${from.left} ${to.top} ${from.left} ${to.top} ${to.left - to.size} ${to.top}`;
    if (shape === "curve") return `M${from.left} ${from.top}Q${Math.max(3, Math.min(from.left, to.left) - 34)} ${(from.top + to.top) / 2} ${to.left} ${to.top}`;
    const length = Math.hypot(to.left - from.left, to.top - from.top) || 1;
    const [x, y] = [(to.left - from.left) / length, (to.top - from.top) / length];
    const at = (along, across) => `${to.left - x * along - y * (across + 2)} ${to.top - y * along + x * (across + 2)}`; // on its right side: the way back is beside it
    const [end, wide] = [to.size + 2, 3 + size];
    const head = shape === "bar" ? `M${at(end, -wide)}L${at(end, wide)}` : `M${at(end + 2 * wide, -wide)}L${at(end, 0)}L${at(end + 2 * wide, wide)}`;
    return `M${at(length, 0)}L${at(end, 0)}${head}`;
  }

  /** Write the labels: in rows up to the edge, on a map beside the node where nothing stands yet. */
  name() {
    const taken = this.isMap ? [...this.nodes.values()].map(({ left, top, size }) => [left - size, top - size, left + size, top + size]) : [];
    const sides = new Map(); // edges at the right, left, bottom and top of each node
    for (const line of this.isMap ? this.lines : []) {
      const ends = [this.nodes.get(line.source), this.nodes.get(line.target)];
      for (const [one, other] of [ends, ends.toReversed()]) {
        const [x, y] = [other.left - one.left, other.top - one.top];
        const busy = sides.get(one) ?? [0, 0, 0, 0];
        busy[Math.abs(x) > 1.5 * Math.abs(y) ? (x > 0 ? 0 : 1) : y > 0 ? 2 : 3] += 1;
        sides.set(one, busy);
      }
    }
    for (const node of this.nodes.values()) {
      if (node.words) continue;
      const label = node.element.lastChild;
      const letter = node.strong ? BOLD : CHARACTER;
      const room = this.width - node.left - node.size - 8;
      const text = shorten(straighten(node.text), this.isMap ? LONGEST : Math.max(4, Math.floor(room / letter)));
      const tag = node.tag && (this.isMap || text.length * letter + (node.tag.length + 1) * CHARACTER <= room) ? node.tag : "";
      label.firstChild.textContent = text;
      if (node.tag) label.lastChild.textContent = tag;
      const wide = text.length * letter + (tag ? tag.length + 1 : 0) * CHARACTER;
      const gap = node.size + 5;
      const boxes = [[gap, 4, "start", gap], [-gap, 4, "end", -gap - wide], [0, gap + 11, "middle", -wide / 2], [0, -gap, "middle", -wide / 2]];
      const busy = sides.get(node) ?? [];
      const order = this.isMap ? boxes.toSorted((one, other) => (busy[boxes.indexOf(one)] ?? 0) - (busy[boxes.indexOf(other)] ?? 0)) : boxes;
      const free = order.find(([, y, , shift]) => {
        if (!this.isMap) return true;
        const box = [node.left + shift, node.top + y - LINE + 4, node.left + shift + wide, node.top + y + 4];
        const isFree = box[0] >= 0 && box[2] <= this.width && box[1] >= 0 && box[3] <= this.height
          && !taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]);
        if (isFree) taken.push(box);
        return isFree;
      });
      label.classList.toggle("unseen", !free);
      const [x, y, anchor] = free ?? boxes[0];
      for (const [name, value] of [["x", x], ["y", y], ["text-anchor", anchor]]) label.setAttribute(name, value);
    }
  }

  /** Light some nodes and the edges between them, and dim the rest; null for none. */
  light(ids) {
    const shown = ids && [...ids].some((id) => this.nodes.has(id)) ? ids : null;
    this.lit = ids;
    this.svg.classList.toggle("dimmed", Boolean(shown));
    for (const [id, node] of this.nodes) node.element.classList.toggle("lit", Boolean(shown?.has(id)));
    for (const line of this.lines) line.element.classList.toggle("lit", Boolean(shown?.has(line.source) && shown.has(line.target)));
  }

  reveal(id) {
    const { left, top, x, y } = this.nodes.get(id);
    const { zoom } = this.view;
    if (left < 0 || top < 0 || left > this.width || top > this.height) this.move(zoom, this.width / 2 - x * zoom, this.height / 2 - y * zoom);
    if (this.nodes.get(id).element.children[1].matches(":focus-visible")) this.onPoint(id);
  }

  /** Arrows go to the next row, or on a map to the nearest node in that direction; Enter opens. */
  press(event) {
    const here = this.nodes.get(event.target.dataset?.id);
    if (!here) return;
    const all = [...this.nodes.values()];
    const [right, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [];
    let next = null;
    if (event.key === "Enter" || event.key === " ") this.onNode(here.id);
    else if (right === undefined) return;
    else if (this.isMap) {
      const cost = (other) => {
        const [x, y] = [other.x - here.x, other.y - here.y];
        const along = x * right + y * down;
        return other === here || along <= 0 ? Infinity : along + 2 * Math.abs(x * down + y * right);
      };
      next = all.reduce((one, other) => (cost(other) < cost(one) ? other : one), here);
    } else next = all[all.indexOf(here) + (down || right)];
    event.preventDefault();
    if (!next || next === here) return;
    event.target.setAttribute("tabindex", -1);
    next.element.children[1].setAttribute("tabindex", 0);
    next.element.children[1].focus();
  }

  /** The wheel enlarges, dragging moves; a finger scrolls the page until the map is enlarged. */
  listen() {
    let from = null;
    this.svg.addEventListener("wheel", (event) => {
      const box = this.svg.getBoundingClientRect();
      if (this.enlarge(1.002 ** -event.deltaY, event.clientX - box.left, event.clientY - box.top)) event.preventDefault();
    }, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => {
      this.dragged = false;
      from = { x: event.clientX, y: event.clientY, view: this.view };
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const [x, y] = [event.clientX - from.x, event.clientY - from.y];
      if (!this.dragged && Math.hypot(x, y) < 5) return;
      if (!this.dragged) this.svg.setPointerCapture(event.pointerId);
      this.dragged = true;
      this.move(this.view.zoom, from.view.x + x, from.view.y + y);
    });
  }
}

/** Height of a number of rows, and the middle of one of them, in pixels. */
export const heightOf = (rows) => Math.max(1, rows) * ROW + 12;
export const middleOf = (row) => row * ROW + ROW / 2 + 6;

/** A share as a class of colour, none where too few are known; and what these colours mean. */
export const rateShare = (share, isKnown = true) => (share == null || !isKnown ? "dim" : share >= 0.6 ? "good" : share <= 0.4 ? "bad" : "mixed");
export const explainShares = (few, none) => [["good", "● 60% and more"], ["mixed", "● between"], ["bad", "● 40% and less"], ["dim", `● ${few}`], ["dim", `○ ${none}`]].map(([kind, text]) => make("span", { class: kind }, text));

/** Move points {x, y} to where edges [point, point] pull and points push; `held` ones move little. */
export function spread(points, edges, held = new Set()) {
  const rounds = 160;
  for (let round = 0; round < rounds; round += 1) {
    const reach = 0.6 * (1 - round / rounds) + 0.01;
    for (const point of points) [point.dx, point.dy] = [-0.1 * point.x, -0.1 * point.y]; // all are drawn to the middle
    for (const [place, one] of points.entries()) {
      for (let next = place + 1; next < points.length; next += 1) {
        const other = points[next];
        const [x, y] = [one.x - other.x, one.y - other.y];
        const far = x * x + y * y;
        if (far > REACH ** 2) continue; // parts without an edge between them stay near
        const push = 1 / Math.max(0.01, far);
        one.dx += x * push;
        one.dy += y * push;
        other.dx -= x * push;
        other.dy -= y * push;
      }
    }
    for (const [one, other] of edges) {
      const [x, y] = [one.x - other.x, one.y - other.y];
      const pull = Math.hypot(x, y);
      one.dx -= x * pull;
      one.dy -= y * pull;
      other.dx += x * pull;
      other.dy += y * pull;
    }
    for (const point of points) {
      const step = Math.min(1, reach / (Math.hypot(point.dx, point.dy) || 1)) * (held.has(point) ? 0.15 : 1);
      point.x += point.dx * step;
      point.y += point.dy * step;
    }
  }
}
