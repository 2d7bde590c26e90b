// Drawings of graphs with sigma. Positions are pixels; every view has a table that says the same.

import { make, shorten, straighten } from "./dom.js";


const FONT = "13px system-ui, sans-serif";
const ROW = 22; // pixels between two rows
const CHARACTER = 6.6; // pixels, on average

/** Width of an edge by tier, in pixels. */
export const WIDTHS = { reflex: 4.5, habitual: 3, dormant: 1.5, inhibitory: 2 };

const drawings = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const drawing of drawings) drawing.redraw();
});

/** The colour that the style sheet gives to a class, in the current scheme. */
function readColour(name, place) {
  const probe = make("i", { class: name });
  place.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/**
 * One graph. `compose(width)` returns its scene for a width in pixels:
 *   height, whether labels are bare of a ground, and
 *   nodes: {id, x, y, text, tag, size, colour (a class), shape ("disc" or "ring"), strong}
 *   edges: {source, target, colour (a class), size, shape ("arrow", "line" or "curve")}.
 */
export class Drawing {
  constructor(name, compose, onNode = () => {}) {
    this.place = make("div", { class: "drawing", role: "img", "aria-label": name });
    this.compose = compose;
    this.onNode = onNode;
    this.sigma = null;
    this.width = 0;
    this.resized = new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - this.width) > 1) this.draw();
    });
  }

  /** Draw, after the place has got into the page. */
  start() {
    drawings.add(this);
    this.resized.observe(this.place);
    this.draw();
  }

  /** Let go of the canvases: a browser lends only a few. */
  stop() {
    drawings.delete(this);
    this.resized.disconnect();
    this.sigma?.kill();
    this.sigma = null;
    this.place.replaceChildren();
  }

  draw() {
    const width = this.place.clientWidth;
    if (!width) return;
    this.width = width;
    const scene = this.compose(width);
    this.place.style.height = `${scene.height}px`;
    this.bare = scene.bare;
    const graph = this.fill(scene);
    if (!this.sigma) this.begin(graph);
    if (!this.sigma) return;
    this.sigma.setGraph(graph);
    this.sigma.setCustomBBox({ x: [0, width], y: [0, scene.height] });
    this.sigma.resize(true);
    this.sigma.refresh();
  }

  /** Draw from the beginning: the colours may be others. */
  redraw() {
    this.sigma?.kill();
    this.sigma = null;
    this.draw();
  }

  begin(graph) {
    try {
      this.sigma = new Sigma(graph, this.place, this.chooseSettings());
    } catch {
      this.place.replaceChildren(make("p", { class: "dim" }, "This browser cannot draw with WebGL; the table says the same."));
      this.place.style.height = "auto";
      return;
    }
    this.sigma.getTouchCaptor().enabled = false; // a finger scrolls the page; a tap is a click
    this.sigma.on("clickNode", ({ node }) => this.onNode(node));
    this.sigma.on("enterNode", () => this.place.classList.add("pointing"));
    this.sigma.on("leaveNode", () => this.place.classList.remove("pointing"));
  }

  chooseSettings() {
    const { rendering } = Sigma;
    const text = readColour("ink", this.place);
    const ground = readColour("ground", this.place);
    const ring = rendering.createNodeBorderProgram({
      borders: [
        { size: { value: 0.3 }, color: { attribute: "color" } },
        { size: { fill: true }, color: { value: ground } },
      ],
    });
    const drawLabel = (context, node) => {
      context.font = node.strong ? `600 ${FONT}` : FONT;
      const x = node.x + node.size + 5;
      const y = node.y + 4;
      const length = node.label ? context.measureText(node.label).width : -8;
      if (!this.bare && node.label) {
        context.fillStyle = ground;
        context.globalAlpha = 0.85;
        context.fillRect(x - 2, y - 12, length + 4, 16);
        context.globalAlpha = 1;
      }
      context.fillStyle = text;
      context.fillText(node.label, x, y);
      if (!node.tag) return;
      context.font = FONT;
      context.fillStyle = node.tagColour;
      context.fillText(node.tag, x + length + 8, y);
    };
    return {
      allowInvalidContainer: true, // a view may be hidden while it is drawn
      stagePadding: 0,
      enableCameraZooming: false,
      enableCameraPanning: false,
      enableCameraRotation: false,
      doubleClickZoomingRatio: 1,
      labelRenderedSizeThreshold: 0,
      labelDensity: 1000,
      labelGridCellSize: 10,
      zIndex: true,
      minEdgeThickness: 1,
      itemSizesReference: "screen",
      nodeProgramClasses: { ring, disc: rendering.NodeCircleProgram },
      edgeProgramClasses: {
        arrow: rendering.EdgeArrowProgram, line: rendering.EdgeRectangleProgram, curve: rendering.EdgeCurveProgram,
      },
      defaultNodeType: "disc",
      defaultEdgeType: "line",
      defaultDrawNodeLabel: drawLabel,
      defaultDrawNodeHover: (context, node) => {
        context.strokeStyle = text;
        context.lineWidth = 2;
        context.beginPath();
        context.arc(node.x, node.y, node.size + 3, 0, 2 * Math.PI);
        context.stroke();
        drawLabel(context, node);
      },
    };
  }

  fill(scene) {
    const colours = new Map();
    const colourOf = (name) => {
      if (!colours.has(name)) colours.set(name, readColour(name, this.place));
      return colours.get(name);
    };
    const graph = new graphology.MultiDirectedGraph();
    for (const node of scene.nodes) {
      const room = Math.max(4, Math.floor((this.width - node.x - node.size - 8) / CHARACTER));
      const label = shorten(straighten(node.text), room);
      const tag = node.tag && label.length + node.tag.length + 2 <= room ? node.tag : "";
      graph.addNode(node.id, {
        x: node.x, y: scene.height - node.y, label, tag, size: node.size, type: node.shape ?? "disc",
        color: colourOf(node.colour), tagColour: colourOf(node.tagColour ?? node.colour), strong: node.strong,
        forceLabel: true, zIndex: node.strong ? 1 : 0,
      });
    }
    for (const edge of scene.edges) {
      graph.addDirectedEdge(edge.source, edge.target, {
        color: colourOf(edge.colour), size: edge.size, type: edge.shape ?? "line", zIndex: edge.size,
      });
    }
    return graph;
  }
}

/** Height of a number of rows, and the middle of one of them, in pixels. */
export const heightOf = (rows) => Math.max(1, rows) * ROW + 12;
export const middleOf = (row) => row * ROW + ROW / 2 + 6;
