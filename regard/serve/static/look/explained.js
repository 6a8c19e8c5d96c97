/** Each explanation of an output, drawn: tables, or light on the image. */

import { make, percent } from "../make.js";
import { createHeat, short } from "./heat.js";
import { drawLit } from "./image.js";
import { TITLES, headName, nameOf } from "./sequences.js";
import { strongest } from "./unpack.js";

const WIDTH = 288; // pixels of an image
const MOST = 3; // heads that are named

/**
 * @param {object} found  a view's data
 * @param {import("./inside.js").Look} look  @param {(text: string) => void} say
 * @returns {{parts: Node[], heads?: (layer: number, head: number) => void}}  `heads` marks the chosen one
 */
export const draw = (found, look, say) => DRAW[found.view](found, look, say);

const DRAW = { rollout: drawTokens, gradient: drawTokens, ablation: drawEffects, lens: drawLens, patch: drawPatch, agreement: drawAgreement };

const number = (value) => value.toFixed(3).replace("-", "−");
const blocks = (count) => Array.from({ length: count }, (_, depth) => (depth ? `block ${depth}` : "input"));

function drawTokens(found, look, say) {
  const { tokens, outputs, weights, view } = found;
  const written = view === "rollout" ? percent : number;
  if (look.described.input.image) {
    return { parts: [make("div", { class: "views" }, ...outputs.map((name, row) => lit(look, weights[row], name, written, say)))] };
  }
  const heat = createHeat({ name: `What each output depends on: outputs down, tokens across`, corner: "output", columns: tokens, values: weights,
    rows: outputs, tell: (row, column) => `“${outputs[row]}” depends on ${tokens[column]}: ${written(weights[row][column])}` }, say);
  return { parts: [heat.element, note("Colours: each row beside its largest.")] };
}

function drawEffects(found, look, say) {
  const table = heads(found, look, say, "Rise of the loss without each head", (value) => `without it the loss rises by ${number(value)}`);
  return { ...table, parts: [make("p", {}, `The loss is ${number(found.loss)}. ${table.none ? "No head is missed: without any one of them it stays where it is." : table.most}`), ...table.parts] };
}

/** Layers down, heads across; a click on a head enlarges it above. */
function heads({ layers }, { described, state }, say, name, tell) {
  const numbers = layers.map(({ layer }) => described.layers.findIndex((other) => other.name === layer));
  const several = new Set(described.layers.map(({ tab }) => tab)).size > 1;
  const kind = (row) => (several ? `${TITLES[described.layers[numbers[row]].tab].toLowerCase()} ` : "");
  const title = (row, head) => `${kind(row)}${headName(described, numbers[row], head)}`;
  const widest = Math.max(...layers.map((one) => one.heads.length));
  const every = layers.flatMap((one, row) => one.heads.map((value, head) => ({ value, row, head })));
  const best = [...every].sort((one, other) => other.value - one.value).slice(0, MOST);
  const heat = createHeat({
    name: `${name}: layers down, heads across; Enter enlarges`, corner: "layer", columns: Array.from({ length: widest }, (_, head) => `head ${head}`),
    rows: layers.map((_, row) => title(row, 0).replace(/, head \d+$/, "")), top: Math.max(1e-12, ...every.map(({ value }) => Math.abs(value))),
    values: layers.map((one) => Array.from({ length: widest }, (_, head) => one.heads[head] ?? null)),
    write: (row, head) => short(layers[row].heads[head]), tell: (row, head) => `${title(row, head)}: ${tell(layers[row].heads[head])}`,
    pick(row, head) {
      state.set({ tab: described.layers[numbers[row]].tab, layer: numbers[row], head });
      document.querySelector(".large h3").scrollIntoView({ block: "nearest" });
    },
  }, say);

  function mark(layer, head) {
    heat.cells.forEach((row, at) => row.forEach((cell, place) => {
      cell.firstElementChild?.setAttribute("aria-pressed", String(numbers[at] === layer && place === head));
    }));
  }

  return { parts: [heat.element, note("Click a head to see what it attends to, above.")], heads: mark, none: best.every(({ value }) => short(value) === "·"),
    most: `Most: ${best.map(({ row, head, value }) => `${title(row, head)} (${short(value)})`).join("; ")}.` };
}

function drawLens({ outputs, layers }, look, say) {
  const order = layers.map((_, depth) => layers.length - 1 - depth); // what is said stands above
  const names = blocks(layers.length);
  const tell = (row, column) => {
    const { top, probabilities, right } = layers[order[row]];
    const said = top[column].map((word, i) => `“${word}” ${percent(probabilities[column][i])}`).join(", ");
    return `Behind ${names[order[row]]} for “${outputs[column]}”: ${said}; “${outputs[column]}” itself ${percent(right[column])}`;
  };
  const heat = createHeat({ name: "The output behind each block: blocks down, the last above; outputs across", corner: "behind", columns: outputs,
    rows: order.map((depth) => names[depth]), values: order.map((depth) => layers[depth].probabilities.map(([best]) => best)), top: 1,
    write: (row, column) => layers[order[row]].top[column][0], tell }, say);
  order.forEach((depth, row) => heat.cells[row].forEach((cell, column) => {
    cell.classList.toggle("right", layers[depth].top[column][0] === outputs[column]);
  }));
  const right = outputs.filter((name, column) => layers.at(-1).top[column][0] === name).length;
  return { parts: [make("p", {}, outputs.length === 1 ? `The output that is explained is “${outputs[0]}”.`
    : `At the end of the model, ${right} of ${outputs.length} tokens that follow in the text are its own first choice.`), heat.element,
  note("Columns are the outputs; bold: this block has it already. The stronger the colour, the more probable.")] };
}

function drawPatch(found, look, say) {
  const [mine, other] = found.choices;
  const tables = found.positions.map(({ stack, tokens, shares }) => {
    const [names, order] = [blocks(shares.length), shares.map((_, depth) => shares.length - 1 - depth)];
    const tell = (row, column) => `${tokens[column]} behind ${names[order[row]]}: ${percent(shares[order[row]][column])} comes back`;
    return [make("h3", {}, `From one position of the ${stack}`), createHeat({ name: `What comes back from a position of the ${stack}: blocks down, positions across`,
      corner: "behind", rows: order.map((depth) => names[depth]), columns: tokens, values: order.map((depth) => shares[depth]), top: 1, tell }, say).element];
  });
  const table = heads(found, look, say, "What comes back from each head", (value) => `${percent(value)} comes back`);
  return { ...table, parts: [make("p", {}, `Logit of “${mine}” less that of “${other}”: ${number(found.difference[0])} with this text, ${
    number(found.difference[1])} with the other. ${table.most}`), make("h3", {}, "From one head"), ...table.parts, ...tables.flat()] };
}

function drawAgreement(found, look, say) {
  const { views, tokens, outputs, correlations, weights } = found;
  const pairs = createHeat({ name: "Rank correlation of each two views", rows: views, columns: views, values: correlations, top: 1,
    write: (row, column) => correlations[row][column].toFixed(2).replace("-", "−"),
    tell: (row, column) => `${views[row]} and ${views[column]}: ρ = ${correlations[row][column].toFixed(2)}` }, say);
  const said = [make("p", { "data-said": "meaning" }, found.meaning)];
  const title = make("h3", {}, "How far they agree (rank correlation)");
  if (look.described.input.image) {
    const images = views.map((view) => lit(look, weights[view][0], view, number, say, true));
    return { parts: [...said, make("div", { class: "views" }, ...images), title, pairs.element] };
  }
  const strips = views.map((view) => relative(weights[view]));
  const of = outputs.length === 1 ? `“${outputs[0]}”` : `${outputs.length} outputs, their mean`;
  const heat = createHeat({ name: `What matters for ${of}: views down, tokens across`, rows: views, columns: tokens, values: strips, top: 1,
    tell: (row, column) => `${tokens[column]} by ${views[row]}: ${percent(strips[row][column])} of its largest` }, say);
  return { parts: [...said, make("h3", {}, `What matters for ${of}`), heat.element, title, pairs.element] };
}

/** The mean of outputs, each beside its largest; the largest is 1. */
export function relative(weights) {
  const sums = new Array(weights[0].length).fill(0);
  for (const row of weights) {
    const top = Math.max(1e-12, ...row);
    row.forEach((value, i) => {
      sums[i] += Math.max(0, value) / top / weights.length;
    });
  }
  const top = Math.max(1e-12, ...sums);
  return sums.map((value) => value / top);
}

/** The image with light on what the output depends on; a table lies over it that can be pointed at and walked through. */
function lit({ described }, weights, name, written, say, view = false) {
  const sequence = described.sequences[0];
  const { grid, cell, size, front } = sequence;
  const places = weights.slice(front.length);
  const rows = Array.from({ length: grid[0] }, (_, row) => places.slice(row * grid[1], (row + 1) * grid[1]));
  const canvas = make("canvas", { class: "image", "aria-hidden": "true", "data-lit": name });
  const tell = (row, column) => `${view ? name : `“${name}” depends on`} ${row},${column}: ${written(rows[row][column])}`;
  const heat = createHeat({ name: `The image, lit where ${name} depends on it`, rows: rows.map((_, row) => String(row)),
    columns: rows[0].map((_, column) => String(column)), values: rows, tell }, say);
  heat.table.classList.add("glass");
  heat.table.style.width = `${(WIDTH * grid[1] * cell) / size[1]}px`;
  heat.table.style.height = `${(WIDTH * grid[0] * cell) / size[1]}px`;
  const image = new Image();
  image.addEventListener("load", () => drawLit(canvas, image, sequence, weights.map((weight) => Math.max(0, weight)), WIDTH));
  image.src = described.input.image;
  const best = strongest(places, 1, -Infinity)[0] + front.length;
  const ahead = weights.slice(0, front.length).reduce((sum, one) => sum + one, 0);
  return make("figure", { class: "lit" }, make("div", { class: "layers" }, canvas, heat.table), make("figcaption", { class: "note" },
    `${view ? name : `“${name}”`}: most ${nameOf(sequence, best)}, ${written(weights[best])}${front.length ? `; ${front.length === 1 ? "the class token" : "tokens before the patches"} ${written(ahead)}` : ""}`));
}

const note = (text) => make("p", { class: "note" }, text);
