/** q, k and v of one head as numbers: score → scale → bias → mask → softmax → mix, step by step. */

import { make } from "../make.js";
import { css, palette } from "./palette.js";
import { nameOf } from "./sequences.js";

const MOST = 24; // rows of the table: the strongest keys, in the order of the text

/** @type {import("./inside.js").Panel} */
export const panel = {
  name: "numbers",
  title: "Step by step",
  folded: true,
  fits: ({ layers }) => layers.length > 0,

  mount(host, look) {
    const { described, state, source } = look;
    const box = make("div", { class: "steps" });
    host.append(box);
    let turn = 0;

    async function show() {
      if (!look.isOpen(panel.name) || !look.weights) return;
      const own = (turn += 1);
      const { layer, head, at } = state.values;
      const info = described.layers[layer];
      const index = at && at.sequence === info.queries ? at.index : 0;
      const [window, query] = look.weights.place(index);
      try {
        const found = await source.head(layer, head, window);
        if (own !== turn) return;
        box.replaceChildren(...(found ? table(info, found, window, query, index)
          : [make("p", { class: "note" }, "This file is without these numbers: look at the model itself, regard look RUN INPUT")]));
      } catch (error) {
        if (own === turn) look.fail(error);
      }
    }

    function table(info, found, window, query, index) {
      const [queries, keys] = [described.sequences[info.queries], described.sequences[info.keys]];
      const steps = compute(found, query);
      const width = found.q.shape[1];
      const token = (place) => (look.weights.places ? look.weights.places[window * look.weights.keys + place] : place);
      const weight = (key) => steps.weights?.[key] ?? look.weights.at(window, state.values.head, query, key);
      const kept = [...Array(look.weights.keys).keys()].filter((key) => token(key) >= 0)
        .sort((a, b) => weight(b) - weight(a)).slice(0, MOST).sort((a, b) => a - b);
      const own = { q: row(found.q, query) };
      const out = mixed(found.v, [...Array(look.weights.keys).keys()].map(weight));
      const heads = ["key", "k", ...(steps.products ? ["q · k"] : []), ...(steps.scaled ? [`× ${round(found.scale)}`] : []),
        ...(steps.given ? ["score"] : []), ...(found.bias ? ["+ bias"] : []), ...(found.mask ? ["mask"] : []), "softmax", "v"];
      const lines = kept.map((key) => {
        const hidden = found.mask && !found.mask.values[query * found.mask.shape[1] + key];
        const cells = [strip(row(found.k, key)), ...(steps.products ? [round(steps.products[key])] : []),
          ...(steps.scaled ? [round(steps.scaled[key])] : []), ...(steps.given ? [round(steps.given[key])] : []),
          ...(found.bias ? [round(found.bias.values[query * found.bias.shape[1] + key])] : []),
          ...(found.mask ? [hidden ? "−∞" : ""] : []), share(weight(key)), strip(row(found.v, key))];
        return make("tr", { class: hidden ? "hidden-key" : "" }, make("th", { scope: "row" }, nameOf(keys, token(key))),
          ...cells.map((cell) => make("td", {}, cell)));
      });
      const sum = steps.weights ? steps.weights.reduce((total, one) => total + one, 0) : null;
      return [
        make("p", {}, make("strong", {}, nameOf(queries, index)), ` asks with q, ${width} numbers: `, strip(own.q)),
        found.own ? make("p", { class: "note" }, `The kernel ${info.kernel} computes weights in its own way: only its weights are shown.`)
          : make("p", { class: "note" }, found.scores ? "Scores are no products here: each is computed by a small network."
            : `Each score is a product of q with a key's k, times ${round(found.scale)}${
              Math.abs(found.scale - width ** -0.5) < 1e-6 ? ` = 1/√${width}` : ""}${found.bias ? ", plus a bias for the distance" : ""}.`),
        make("div", { class: "scroll" }, make("table", { class: "numbers" },
          make("thead", {}, make("tr", {}, ...heads.map((name) => make("th", { scope: "col", class: "kv".includes(name) ? "strips" : "" }, name)))),
          make("tbody", {}, ...lines))),
        make("p", { class: "note" }, kept.length < look.weights.keys ? `The strongest ${kept.length} of ${look.weights.keys} keys. ` : "",
          sum === null ? "" : `All weights together: ${sum.toFixed(5)}.`),
        make("p", {}, "Σ weight × v is what this head passes on: ", strip(out), " ",
          make("code", { "data-said": "mixed" }, `[${[...out.slice(0, 6)].map(round).join(", ")}${out.length > 6 ? ", …" : ""}]`)),
      ];
    }

    look.whenWeights(show);
    look.whenOpened(panel.name, show);
    state.listen((changed) => changed.has("at") && show());
  },
};

/** The steps for one query; what a kernel does not have stays out. */
export function compute(found, query) {
  const keys = found.k.shape[0];
  const products = found.scale === null ? null : Array.from({ length: keys }, (_, key) => dot(row(found.q, query), row(found.k, key)));
  const given = found.scores ? [...found.scores.values.subarray(query * keys, (query + 1) * keys)] : null;
  if (!products && !given) return {};
  const scaled = products?.map((one) => one * found.scale);
  const scores = (scaled ?? given).map((score, key) => {
    if (found.mask && !found.mask.values[query * keys + key]) return -Infinity;
    return score + (found.bias ? found.bias.values[query * keys + key] : 0);
  });
  const top = Math.max(...scores);
  const parts = scores.map((score) => (top === -Infinity ? 0 : Math.exp(score - top)));
  const sum = parts.reduce((total, one) => total + one, 0) || 1;
  return { products, scaled: Math.abs(found.scale - 1) > 1e-9 ? scaled : null, given, weights: parts.map((one) => one / sum) };
}

const row = ({ shape, values }, index) => values.subarray(index * shape[1], (index + 1) * shape[1]);
const dot = (one, other) => one.reduce((sum, value, i) => sum + value * other[i], 0);

function mixed(values, weights) {
  const out = new Float32Array(values.shape[1]);
  weights.forEach((weight, key) => row(values, key).forEach((value, i) => {
    out[i] += weight * value;
  }));
  return out;
}

const round = (number) => (Math.abs(number) >= 100 ? number.toFixed(1) : number.toFixed(3)).replace("-", "−");
const share = (weight) => {
  const bar = make("span", { class: "share" }, weight.toFixed(4));
  bar.style.setProperty("--weight", String(weight));
  return bar;
};

/** A vector as a strip of colours: blue above zero, orange below. */
export function strip(numbers, most = 64) {
  const few = numbers.subarray(0, most);
  const canvas = make("canvas", { class: "strip", width: few.length, height: 1, role: "img",
    "aria-label": `${numbers.length} numbers: ${[...few.slice(0, 4)].map(round).join(", ")} …`,
    title: [...few].map(round).join("  ") });
  const top = few.reduce((largest, one) => Math.max(largest, Math.abs(one)), 1e-9);
  const { accent, warm } = palette();
  const pen = canvas.getContext("2d");
  few.forEach((number, i) => {
    pen.fillStyle = css(number < 0 ? warm : accent, Math.sqrt(Math.abs(number) / top));
    pen.fillRect(i, 0, 1, 1);
  });
  return canvas;
}
