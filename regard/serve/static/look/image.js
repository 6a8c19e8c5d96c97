/** The image, lit where it is attended to; cells can be pointed at, and walked through with the arrow keys. */

import { make, percent } from "../make.js";
import { recall, remember } from "../memory.js";
import { nameOf } from "./sequences.js";

const WIDTH = 384;
const LIGHT = 0.72; // how strong the light is over what is attended to most, until somebody moves the slider
const DIM = 0.4 / LIGHT; // how much the image is darkened, for each part of light
const BOX = ["#ffffff", "#4cc9f0", "#7ae582", "#f28cc8", "#ffe066", "#c8a2ff"]; // on a darkened image in both themes

/** Whether a layer looks from what the answer is about: a query, or a pixel behind which the next is painted. */
const isAsked = ({ described: { answer, sequences } }, layer) =>
  answer.sequence === layer.queries && (answer.kind === "boxes" || Boolean(sequences[layer.queries].grid));

/** What is lit for a layer and head: what the token pointed at reads; else the one that is asked, the class token, or all on average. */
export function mapOf(look, layer, weights, head) {
  const { at } = look.state.values;
  const queries = look.described.sequences[layer.queries];
  if (at && at.sequence === layer.queries) return weights.reads(head, at.index);
  if (at && queries.grid && look.described.sequences[at.sequence].grid) { // a place of another grid
    return weights.reads(head, placeIn(look.described.sequences[at.sequence], at.index, queries));
  }
  const { answer } = look.described;
  if (isAsked(look, layer)) return weights.reads(head, answer.row);
  if (queries.front?.length && queries.grid) return weights.reads(head, 0);
  return weights.mean(head);
}

/** The place of one grid that holds a place of another. */
export function placeIn(from, index, to) {
  if (index < from.front.length) return Math.min(index, Math.max(0, to.front.length - 1));
  const place = index - from.front.length;
  const [row, column] = [Math.floor(place / from.grid[1]), place % from.grid[1]];
  const across = (value, count) => Math.min(count - 1, Math.floor(((value + 0.5) * from.cell) / to.cell));
  return to.front.length + across(row, to.grid[0]) * to.grid[1] + across(column, to.grid[1]);
}

/** @param {import("./inside.js").Look} look */
export function createImage(look) {
  const { described, state } = look;
  const image = new Image();
  const canvas = make("canvas", { class: "image", tabIndex: 0, "data-key": "image", role: "img",
    onpointermove: point, onpointerleave: state.leave, onclick: pick, onkeydown: walk, onblur: state.leave });
  const said = make("p", { class: "note", "data-said": "image" });
  const slider = make("input", { type: "range", min: 0, max: 100, step: 1, value: String(Math.round(100 * recall("overlay", LIGHT))),
    "data-key": "overlay", "aria-label": "Overlay of attention over the image", oninput: cover });
  const degree = make("span", { class: "degree" }, `${slider.value} %`);
  const overlay = make("label", { class: "slider" }, make("span", { "aria-hidden": "true" }, "Overlay"), slider, degree);
  const element = make("div", { class: "image-box" }, canvas, overlay, said);
  let shown = null; // the layer, its weights and head

  image.addEventListener("load", () => draw());
  image.src = described.input.image;

  function cover() {
    degree.textContent = `${slider.value} %`;
    remember("overlay", Number(slider.value) / 100);
    draw();
  }

  const sequence = () => described.sequences[shown.layer.keys];

  function placeAt(event) {
    const { grid, cell, size, front } = sequence();
    const box = canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * (size[0] / cell));
    const column = Math.floor(((event.clientX - box.left) / box.width) * (size[1] / cell));
    if (row < 0 || column < 0 || row >= grid[0] || column >= grid[1]) return -1;
    return front.length + row * grid[1] + column;
  }

  function point(event) {
    const place = shown ? placeAt(event) : -1;
    if (place >= 0) state.point(shown.layer.keys, place);
  }

  function pick(event) {
    const place = shown ? placeAt(event) : -1;
    if (place >= 0) state.pick(shown.layer.keys, place);
  }

  function walk(event) {
    if (!shown) return;
    const { grid, front } = sequence();
    const { at } = state.values;
    const now = at && at.sequence === shown.layer.keys ? at.index - front.length : -1;
    const [row, column] = now < 0 ? [0, 0] : [Math.floor(now / grid[1]), now % grid[1]];
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (event.key === "Escape") return state.free();
    if (!step) return;
    event.preventDefault();
    const next = now < 0 ? [0, 0] : [row + step[0], column + step[1]];
    if (next[0] < 0 || next[1] < 0 || next[0] >= grid[0] || next[1] >= grid[1]) return;
    state.pick(shown.layer.keys, front.length + next[0] * grid[1] + next[1]);
    look.announce(said.textContent);
  }

  function draw() {
    if (!shown || !image.complete || !image.naturalWidth) return;
    const { layer, weights, head } = shown;
    const map = mapOf(look, layer, weights, head);
    drawLit(canvas, image, described.sequences[layer.keys], map, WIDTH, Number(slider.value) / 100);
    if (layer.windows) drawWindows(canvas, layer, described.sequences[layer.keys], weights);
    drawMarks(canvas, layer);
    tell(layer, map);
  }

  function drawMarks(own, layer) {
    const { at } = state.values;
    const grid = described.sequences[layer.keys];
    const scale = own.width / grid.size[1];
    const pen = own.getContext("2d");
    if (described.answer.kind === "boxes" && layer.kind !== "encoder") drawBoxes(pen, scale);
    if (at && described.sequences[at.sequence].grid && at.index >= described.sequences[at.sequence].front.length) {
      const one = described.sequences[at.sequence];
      const place = at.index - one.front.length;
      const [row, column] = [Math.floor(place / one.grid[1]), place % one.grid[1]];
      pen.lineWidth = 2;
      pen.strokeStyle = BOX[0];
      pen.strokeRect(column * one.cell * scale + 1, row * one.cell * scale + 1, one.cell * scale - 2, one.cell * scale - 2);
    }
  }

  function drawBoxes(pen, scale) {
    const { answer } = described;
    const { at } = state.values;
    const only = at && at.sequence === answer.sequence ? at.index : null;
    answer.boxes.forEach((box, query) => {
      if (only === null ? answer.scores[query] < 0.5 : query !== only) return;
      const [left, top, right, bottom] = box.map((side) => side * scale);
      pen.lineWidth = 2;
      pen.strokeStyle = BOX[query % BOX.length];
      pen.strokeRect(left, top, right - left, bottom - top);
      pen.font = "600 12px system-ui, sans-serif";
      pen.fillStyle = pen.strokeStyle;
      pen.fillText(described.sequences[answer.sequence].tokens[query], left + 3, top > 14 ? top - 4 : bottom + 13);
    });
  }

  function tell(layer, map) {
    const keys = described.sequences[layer.keys];
    const { at } = state.values;
    let best = keys.front.length;
    map.forEach((weight, key) => {
      if (key >= keys.front.length && weight > map[best]) best = key;
    });
    const front = map.subarray(0, keys.front.length).reduce((sum, one) => sum + one, 0);
    const who = at ? nameOf(described.sequences[at.sequence], at.index) : whoLooks(layer);
    said.textContent = `${who} attends most to ${nameOf(keys, best)}, ${percent(map[best])}${
      front > 0.001 ? `; ${percent(front)} at ${keys.front.join(" and ")}` : ""}.`;
    canvas.setAttribute("aria-label", `The image, lit where it is attended to. ${said.textContent} Arrow keys walk.`);
  }

  function whoLooks(layer) {
    const { answer } = described;
    const queries = described.sequences[layer.queries];
    if (isAsked(look, layer)) return answer.kind === "boxes" ? `query ${answer.row}` : nameOf(queries, answer.row);
    return queries.front?.length && queries.grid ? queries.front[0] : "On average, each";
  }

  return {
    element,
    image,
    show(layer, weights, head) {
      shown = { layer, weights, head };
      draw();
    },
    draw,
  };
}

/** An image, dimmed by `light`, with light of its own where it is attended to: dark cells can be attended to, too. */
export function drawLit(canvas, image, { grid, cell, size, front }, map, width, light = LIGHT) {
  const scale = width / size[1];
  [canvas.width, canvas.height] = [width, Math.round(size[0] * scale)];
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = image.naturalWidth > width;
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  pen.fillStyle = `rgb(12 14 24 / ${DIM * light})`;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  let top = 1e-9;
  for (let key = front.length; key < map.length; key += 1) top = Math.max(top, map[key]);
  for (let place = 0; place < grid[0] * grid[1]; place += 1) {
    const share = map[front.length + place] / top;
    const [x, y] = [(place % grid[1]) * cell * scale, Math.floor(place / grid[1]) * cell * scale];
    pen.fillStyle = `rgb(255 ${Math.round(120 + 90 * share)} 0 / ${light * Math.sqrt(share)})`;
    const [left, up] = [Math.round(x), Math.round(y)];
    pen.fillRect(left, up, Math.round(x + cell * scale) - left, Math.round(y + cell * scale) - up);
  }
  canvas.dataset.drawn = "yes";
}

/** Lines between cells that do not attend to each other. */
function drawWindows(canvas, layer, { grid, cell, size }, weights) {
  const scale = (cell * canvas.width) / size[1];
  const pen = canvas.getContext("2d");
  const { shift } = layer.windows;
  const of = (row, column) => {
    const window = Math.floor(weights.where[row * grid[1] + column] / weights.queries);
    return 4 * window + 2 * (row < shift ? 1 : 0) + (column < shift ? 1 : 0); // what only the shift brought together
  };
  pen.strokeStyle = "rgb(255 255 255 / 0.75)";
  pen.lineWidth = 1;
  pen.beginPath();
  for (let row = 0; row < grid[0]; row += 1) {
    for (let column = 0; column < grid[1]; column += 1) {
      const [x, y] = [Math.round(column * scale) + 0.5, Math.round(row * scale) + 0.5];
      if (column && of(row, column) !== of(row, column - 1)) pen.rect(x, y, 0, scale);
      if (row && of(row, column) !== of(row - 1, column)) pen.rect(x, y, scale, 0);
    }
  }
  pen.stroke();
}
