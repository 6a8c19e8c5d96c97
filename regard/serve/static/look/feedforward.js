/** What the parts of each block write into the residual stream, the loss without them, and neurons as memories. */

import { make, percent, visible } from "../make.js";
import { createHeat, short } from "./heat.js";

const PARTS = ["attention", "cross", "feedforward"];
const NAMES = { attention: "attention", cross: "cross-attention", feedforward: "feed-forward" };
const COLUMNS = { written: "added / stream", share: "share of the last stream", rise: "rise of the loss without it" };

/** @param {object} found  as `show_feedforward` gives it  @param {(text: string) => void} say  told what is pointed at */
export function drawFeedForward(found, say) {
  const rows = found.layers.flatMap(({ layer, call, parts }) => PARTS.filter((part) => part in parts)
    .map((part) => ({ name: `${layer}${call ? ` (${call + 1})` : ""} ${NAMES[part]}`, ...parts[part] })));
  const keys = Object.keys(COLUMNS).filter((key) => rows.some((row) => row[key] !== null));
  const tops = keys.map((key) => Math.max(1e-12, ...rows.map((row) => Math.abs(row[key] ?? 0))));
  const write = (row, column) => (keys[column] === "share" ? percent(rows[row].share) : short(rows[row][keys[column]]));
  const heat = createHeat({ name: "Parts of blocks down, what they do across", columns: keys.map((key) => COLUMNS[key]), rows: rows.map(({ name }) => name),
    values: rows.map((row) => keys.map((key, column) => (row[key] === null ? null : row[key] / tops[column]))), top: 1, write,
    tell: (row, column) => `${rows[row].name}, ${COLUMNS[keys[column]]}: ${write(row, column)}` }, say);
  const most = rows.reduce((best, row) => (row.rise > best.rise ? row : best));
  const parts = [make("p", {}, `The loss of ${found.outputs} outputs is ${short(found.loss)}. Most is lost without ${most.name}: it rises by ${short(most.rise)}.`), heat.element];
  return found.neurons ? [...parts, ...neurons(found)] : parts;
}

/** A neuron is a key, excited by some inputs, and a value, which promotes some outputs. */
function neurons({ neurons: rows, token, output, examples }) {
  const items = rows.map(({ block, neuron, activation, promotes, excited }) => make("li", {},
    make("strong", {}, `Block ${block + 1}, neuron ${neuron}`), ` (${activation.toFixed(2).replace("-", "−")}) promotes `,
    ...promotes.map((name) => make("code", {}, visible(name))), make("div", { class: "note" }, "Excited by ",
      ...excited.flatMap(({ before, token: at, after }, i) => [i ? " · " : "", before, make("mark", {}, at), after]))));
  return [make("h3", {}, `Neurons that write most at “${visible(token)}”, for the output “${visible(output)}”`),
    make("p", { class: "note" }, examples === null ? "The tokens that excite them are sought in this input; regard look --view ffn --data FILE seeks them in yours."
      : `The tokens that excite them are sought in ${examples} examples.`), make("ul", { class: "neurons" }, ...items)];
}
