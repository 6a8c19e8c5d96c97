/** What a model says of a graph, or of its nodes, beside the graph as a drawing. */

import { post } from "../api.js";
import { createCopyPanel } from "../copy.js";
import { createDrop, uriOf } from "../drop.js";
import { createExamples } from "../examples.js";
import { make, makeSvg, percent } from "../make.js";
import { createTask } from "../task.js";

const PATH = "/v1/predict";
const EDGE = 44;
const MARGIN = 24;
const MOST_ROWS = 200;

/** @type {import("./index.js").View} */
export const view = {
  name: "predict",
  title: "Predict",
  needs: "predict",

  mount(host, context) {
    const smiles = make("input", { type: "text", name: "smiles", autocomplete: "off", spellcheck: false, onchange: typed });
    const zone = createDrop({ name: "graph", label: "Graph: .graphml, .json, edges as .csv", take },
      make("label", { class: "field wide" }, make("span", {}, "or a molecule as SMILES"), smiles));
    const drawing = make("div", { class: "stack" });
    const rows = make("ol", { class: "phrases" });
    const result = make("section", { class: "result", hidden: true, "aria-label": "Result" }, rows, drawing);
    const copy = createCopyPanel();
    const task = createTask({ label: "Predict", context, work });
    const examples = createExamples(context, { name: "predict", current: () => (graph ? null : ""), use });
    /** @type {string | object | null} */
    let graph = null;

    function use(example) {
      graph = example.graph;
      task.go();
    }

    function typed() {
      if (smiles.value.trim()) use({ graph: { smiles: smiles.value.trim() } });
    }

    async function take(file) {
      use({ graph: await uriOf(file) });
    }

    async function work(signal) {
      if (!graph) throw new Error("Choose a graph, or drop one here.");
      const body = { model: context.model.id, graph };
      const [found] = (await post(PATH, body, signal)).data;
      rows.replaceChildren(...found.predictions.slice(0, MOST_ROWS).map((row) => make("li", {}, sentence(row))));
      drawing.replaceChildren();
      result.hidden = false;
      copy.show({ kind: "predict", path: PATH, body });
      const seen = await post("/v1/look", body, signal).catch(() => null); // too large to be drawn
      if (seen?.input.places) drawing.replaceChildren(draw(seen.input, seen.sequences[0].tokens, found.predictions));
    }

    host.append(make("div", { class: "stack" }, zone.element, examples.element, task.element, result, copy.element));
    examples.show();
    return { ...task, modelChanged: examples.show };
  },
};

/** A prediction in words: `distance 3, 98.2 %`. */
function sentence(row) {
  return Object.entries(row).map(([name, value]) => {
    if (name === "probability") return percent(value);
    return `${name} ${typeof value === "number" ? Number(value.toPrecision(4)) : value}`;
  }).join(", ");
}

/** The graph as lines and circles; of predictions for nodes, each circle says its own. */
function draw({ places, edges }, names, predictions) {
  const at = places.map(([x, y]) => [MARGIN + EDGE * x, MARGIN + EDGE * y]);
  const [width, height] = [0, 1].map((axis) => 2 * MARGIN + Math.max(...at.map((place) => place[axis])));
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "The graph" });
  svg.style.maxWidth = "100%";
  for (const [a, b] of edges) {
    svg.append(makeSvg("line", { x1: at[a][0], y1: at[a][1], x2: at[b][0], y2: at[b][1], stroke: "currentColor", "stroke-opacity": 0.45 }));
  }
  names.forEach((name, node) => {
    const [x, y] = at[node];
    const circle = makeSvg("circle", { cx: x, cy: y, r: 6, fill: "var(--accent)" });
    const title = makeSvg("title");
    title.textContent = predictions.length === names.length && names.length > 1 ? sentence(predictions[node]) : name;
    circle.append(title);
    const label = makeSvg("text", { x: x + 8, y: y - 5, "font-size": 10, fill: "currentColor" });
    label.textContent = name;
    svg.append(circle, label);
  });
  return svg;
}
