/** The tree of a beam search: a column for each step, its candidates from the best down. */

import { make, makeSvg, visible } from "../make.js";

const [WIDE, TALL, ABOVE] = [130, 34, 26]; // pixels of a candidate with what is between it and the next; above: the step
const BOX = [100, 26];
const LETTERS = 7; // of a token that fit into its box

const number = (value, digits) => value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−");
const cut = (token) => (token.length > LETTERS ? `${token.slice(0, LETTERS - 1)}…` : token);

/** @param {object} found  as `show_search` gives it  @param {(text: string) => void} say  told what is pointed at */
export function drawSearch(found, say) {
  const { steps, hypotheses, greedy, beams, length_penalty: penalty } = found;
  const best = hypotheses[0]?.path ?? [];
  const lost = greedy.dropped === null ? 0 : 1;
  const deepest = Math.max(...steps.map((step) => step.length));
  const [width, height] = [24 + WIDE * steps.length, ABOVE + TALL * (deepest + lost) + 6];
  const svg = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "search", role: "img",
    "aria-label": `The tree of a search with ${beams} beams over ${steps.length} steps` });
  const ranks = steps.map((step) => new Map(step.map((one, rank) => [one.beam, rank])));
  const at = (step, rank) => [24 + WIDE * step, ABOVE + TALL * rank + TALL / 2];

  steps.forEach((step, column) => step.forEach((one, rank) => {
    const [x, y] = at(column, rank);
    const [left, above] = column ? at(column - 1, ranks[column - 1].get(one.origin)) : [-BOX[0] + 4, at(0, 0)[1]];
    const draw = (kind) => svg.append(makeSvg("line", { x1: left + BOX[0], y1: above, x2: x, y2: y, class: kind }));
    draw(one.fate);
    if (best[column] === rank) draw("best");
    if (greedy.path[column] === rank) draw("greedy");
  }));
  steps.forEach((step, column) => {
    svg.append(text(at(column, 0)[0], 15, `step ${column + 1}`, "soft"));
    step.forEach((one, rank) => svg.append(candidate(one, at(column, rank), say)));
  });
  if (lost) {
    greedy.tokens.slice(0, steps.length).forEach((token, column) => {
      if (column >= greedy.dropped) svg.append(text(at(column, 0)[0] + 5, at(column, deepest)[1] + 4, cut(visible(token)), "greedy"));
    });
  }
  const rows = [...hypotheses.map((one, i) => [one, i ? "" : "best"]), [{ ...greedy, text: `${greedy.text} (greedy)` }, "greedy"]];
  return [
    make("p", {}, verdict(found)),
    make("div", { class: "scroll" }, svg),
    make("p", { class: "note" }, `Score: Σ log p / length^${penalty}. Boxes are kept, thick ones ended, what has none was dropped.`),
    make("ol", { class: "hypotheses" }, ...rows.map(([one, kind]) => make("li", { "data-kind": kind },
      make("span", { class: "note" }, number(one.score, 4)), ` ${one.text}`))),
  ];
}

function candidate(one, [x, y], say) {
  const told = `${visible(one.token)}: log p ${number(one.log_probability, 3)}, sum ${number(one.total, 3)}, ${one.fate}`;
  const group = makeSvg("g", { class: `candidate ${one.fate}` });
  group.addEventListener("pointerenter", () => say(told));
  group.append(makeSvg("rect", { x, y: y - BOX[1] / 2, width: BOX[0], height: BOX[1], rx: 5 }),
    text(x + 6, y + 4, cut(visible(one.token)), "token"), text(x + BOX[0] - 5, y + 4, number(one.total, 1), "sum"));
  return group;
}

function text(x, y, words, kind) {
  const element = makeSvg("text", { x, y, class: kind });
  element.textContent = words;
  return element;
}

/** Greedy choice beside the search, in a sentence. */
function verdict({ hypotheses, greedy }) {
  if (greedy.dropped !== null) {
    const gain = (hypotheses[0]?.score ?? greedy.score) - greedy.score;
    return `The search dropped the greedy path at step ${greedy.dropped + 1}; its best score is ${gain < 0 ? "" : "+"}${number(gain, 4)}.`;
  }
  if (String(hypotheses[0]?.path) === String(greedy.path)) return "The best hypothesis is the greedy one.";
  return "The greedy path stays in the search to its end, and another hypothesis has the better score.";
}
