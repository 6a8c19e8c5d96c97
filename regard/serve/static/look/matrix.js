/** One head as a matrix: a row looks, a column is seen. */

import { make, percent } from "../make.js";
import { css, palette, sized } from "./palette.js";
import { askers, nameOf } from "./sequences.js";

const ROOM = 460; // pixels of the longer side
const [LEFT, RIGHT] = [92, 40]; // pixels for the names of queries, and for what leans over the last key
const LABELS = 10; // pixels of a cell from which tokens are written beside it

/** @param {import("./inside.js").Look} look */
export function createMatrix(look) {
  const { described, state } = look;
  const base = make("canvas", { role: "img", "data-matrix": "base" });
  const over = make("canvas", { class: "over", "aria-hidden": "true", onpointermove: point, onpointerleave: leave,
    onclick: pick });
  const said = make("p", { class: "note", "data-said": "matrix" }, "\u00a0");
  const element = make("figure", { class: "matrix" }, make("div", { class: "layers" }, base, over), said);
  let shown = null;
  let frame = { left: 0, top: 0, cell: 1 };

  /** With windows, the one of the token that is pointed at. */
  const windowOf = () => {
    const { at } = state.values;
    const own = at && at.sequence === shown.layer.queries ? at.index : 0;
    return shown.weights.place(own)[0];
  };

  const token = (window, place) => (shown.weights.places ? shown.weights.places[window * shown.weights.queries + place] : place);

  function draw() {
    if (!shown) return;
    const { layer, weights, head } = shown;
    const { queries: T, keys: S } = weights;
    const window = windowOf();
    shown.window = window;
    const space = element.parentElement?.clientWidth || ROOM + LEFT + RIGHT; // a phone has less
    const cellIn = (room) => Math.max(1, Math.min(26, ROOM / Math.max(T, S), room / S));
    const named = described.sequences[layer.keys].tokens && described.sequences[layer.queries].tokens;
    const written = named && cellIn(space - LEFT - RIGHT) >= LABELS;
    const cell = cellIn(written ? space - LEFT - RIGHT : space);
    frame = { left: written ? LEFT : 0, top: written ? 78 : 0, cell };
    const [width, height] = [frame.left + S * cell + (written ? RIGHT : 0), frame.top + T * cell];
    const pen = sized(base, width, height);
    sized(over, width, height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cells(weights, head, window), frame.left, frame.top, S * cell, T * cell);
    const { line, soft } = palette();
    pen.strokeStyle = css(line);
    pen.strokeRect(frame.left + 0.5, frame.top + 0.5, S * cell - 1, T * cell - 1);
    if (written) writeNames(pen, layer, css(soft));
    base.setAttribute("aria-label", `Weights of ${look.head()}: ${T} queries down, ${S} keys across; the deeper the colour, the larger the weight`);
    base.dataset.frame = JSON.stringify([frame.left, frame.top, cell, T, S]);
    base.dataset.drawn = `${state.values.layer} ${head}`;
    drawOver();
  }

  function cells(weights, head, window) {
    const { queries: T, keys: S, bytes, tops } = weights;
    const image = new ImageData(S, T);
    const [colors, known] = [new Uint32Array(image.data.buffer), new Uint32Array(palette().ramp.buffer)];
    const first = (window * weights.heads + head) * T;
    for (let t = 0; t < T; t += 1) {
      const scale = tops[first + t] / 255;
      for (let s = 0; s < S; s += 1) {
        const weight = bytes[(first + t) * S + s] * scale;
        colors[t * S + s] = known[Math.round(255 * Math.sqrt(Math.min(1, weight)))];
      }
    }
    const own = new OffscreenCanvas(S, T);
    own.getContext("2d").putImageData(image, 0, 0);
    return own;
  }

  function writeNames(pen, layer, color) {
    const { left, top, cell } = frame;
    pen.fillStyle = color;
    pen.font = `${Math.min(12, cell - 1)}px ui-monospace, monospace`;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    askers(described, layer).forEach((name, t) => {
      pen.fillText(name, left - 6, top + (t + 0.5) * cell, left - 8);
    });
    pen.textAlign = "left";
    described.sequences[layer.keys].tokens.forEach((name, s) => {
      pen.save();
      pen.translate(left + (s + 0.5) * cell, top - 6);
      pen.rotate(-Math.PI / 3);
      pen.fillText(name, 0, 0, 84);
      pen.restore();
    });
  }

  /** The row and the column of the token that is pointed at. */
  function drawOver() {
    if (!shown) return;
    const { at } = state.values;
    const pen = over.getContext("2d");
    pen.clearRect(0, 0, over.width, over.height);
    if (!at) return;
    const { layer, weights } = shown;
    const { left, top, cell } = frame;
    const { accent, warm } = palette();
    pen.lineWidth = 1.5;
    if (at.sequence === layer.queries) {
      const row = weights.place(at.index)[1];
      pen.strokeStyle = css(accent);
      pen.strokeRect(left, top + row * cell, weights.keys * cell, Math.max(2, cell));
    }
    if (at.sequence === layer.keys) {
      const [window, column] = weights.place(at.index);
      if (window !== shown.window) return;
      pen.strokeStyle = css(warm);
      pen.strokeRect(left + column * cell, top, Math.max(2, cell), weights.queries * cell);
    }
  }

  /** The row and column under the pointer; in a window that was filled up, only those of places. */
  function cellAt(event) {
    const box = over.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - frame.top) / frame.cell);
    const column = Math.floor((event.clientX - box.left - frame.left) / frame.cell);
    if (!shown || row < 0 || column < 0 || row >= shown.weights.queries || column >= shown.weights.keys) return null;
    return [row, column].some((place) => token(shown.window, place) < 0) ? null : [row, column];
  }

  function point(event) {
    const found = cellAt(event);
    if (!found) return leave();
    const { layer, weights, head, window } = shown;
    const [query, key] = found.map((place) => token(window, place));
    said.textContent = `${nameOf(described.sequences[layer.queries], query)} gives ${
      nameOf(described.sequences[layer.keys], key)} ${percent(weights.at(window, head, ...found))}`;
    state.point(layer.queries, query);
  }

  function pick(event) {
    const found = cellAt(event);
    if (found) state.pick(shown.layer.queries, token(shown.window, found[0]));
  }

  function leave() {
    said.textContent = "\u00a0";
    state.leave();
  }

  return {
    element,
    draw,
    show(layer, weights, head) {
      shown = { layer, weights, head, window: 0 };
      draw();
    },
    /** Another token: only with windows the matrix is another one. */
    point() {
      if (shown?.weights.places && windowOf() !== shown.window) draw();
      else drawOver();
    },
  };
}
