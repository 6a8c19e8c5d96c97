/** Which source pieces a translation looked at: two rows of pieces and the lines between them. */

import { make, makeSvg, percent } from "./make.js";

const HEIGHT = 88; // of the lines, in pixels
const LEAST = 0.03; // weaker lines would only be mist

/**
 * @param {{source: string[], target: string[], weights: number[][]}} alignment  a row of weights for each target piece
 */
export function createAlignment({ source, target, weights }) {
  const above = source.map((piece) => make("li", { class: "piece" }, piece));
  const below = target.map((piece, row) => make("button", {
    type: "button", class: "piece", tabIndex: row === 0 ? 0 : -1, "aria-label": `${piece}, from ${strongest(row)}`,
    onpointerenter: () => only(row), onfocus: () => only(row), onclick: () => only(row),
    onpointerleave: rest, onblur: rest,
  }, piece));
  const lines = makeSvg("svg", { class: "lines", height: HEIGHT, "aria-hidden": "true" });
  const inner = make("div", { class: "inner" },
    make("ul", { class: "pieces", "aria-label": "Source" }, ...above), lines,
    make("div", { class: "pieces", role: "group", "aria-label": "Translation; arrow keys walk through its pieces",
      onkeydown: walk }, ...below));
  const element = make("div", { class: "alignment" }, inner);

  function strongest(row) {
    const ranked = weights[row].map((weight, column) => [weight, source[column]]).sort(([a], [b]) => b - a);
    const strong = ranked.slice(0, 3).filter(([weight]) => weight >= LEAST);
    return strong.map(([weight, piece]) => `${piece} ${percent(weight)}`).join(", ");
  }

  function draw() {
    const box = inner.getBoundingClientRect();
    if (box.width === 0) return; // folded away
    const middle = (piece) => {
      const place = piece.getBoundingClientRect();
      return (place.left + place.right) / 2 - box.left;
    };
    const [tops, bottoms] = [above.map(middle), below.map(middle)];
    lines.setAttribute("width", String(inner.scrollWidth));
    lines.replaceChildren(...weights.flatMap((row, to) => row.map((weight, from) => {
      if (weight < LEAST) return null;
      const bend = `C ${tops[from]} ${HEIGHT / 2}, ${bottoms[to]} ${HEIGHT / 2}, ${bottoms[to]} ${HEIGHT}`;
      const line = makeSvg("path", { d: `M ${tops[from]} 0 ${bend}`, "data-row": to });
      line.style.setProperty("--weight", String(weight));
      return line;
    })).filter(Boolean));
  }

  function only(row) {
    lines.classList.add("one");
    for (const line of lines.children) line.classList.toggle("away", Number(line.dataset.row) !== row);
    for (const [to, piece] of below.entries()) piece.classList.toggle("current", to === row);
    for (const [from, piece] of above.entries()) piece.style.setProperty("--weight", String(weights[row][from]));
  }

  function rest() {
    const focused = below.indexOf(document.activeElement);
    if (focused >= 0) return only(focused);
    lines.classList.remove("one");
    for (const line of lines.children) line.classList.remove("away");
    for (const piece of below) piece.classList.remove("current");
    for (const piece of above) piece.style.removeProperty("--weight");
  }

  function walk(event) {
    const at = below.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: below.length - 1 }[event.key];
    if (next === undefined || !below[next]) return;
    event.preventDefault();
    for (const [to, piece] of below.entries()) piece.tabIndex = to === next ? 0 : -1;
    below[next].focus();
  }

  new ResizeObserver(draw).observe(inner);
  return element;
}
