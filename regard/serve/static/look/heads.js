/** Every head of every layer of one kind, small: drawn when it comes into sight, enlarged when it is clicked. */

import { make } from "../make.js";
import { palette } from "./palette.js";
import { headName, isOff, placeOf } from "./sequences.js";
import { mapOf } from "./image.js";

const SIDE = 72; // pixels of a small image, at most

/** @param {import("./inside.js").Look} look */
export function createHeads(look) {
  const { described, state, source } = look;
  const element = make("div", { class: "heads", role: "group", onkeydown: walk,
    "aria-label": "Heads of every layer; arrow keys walk, Enter enlarges" });
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      seen.set(entry.target, entry.isIntersecting);
      if (entry.isIntersecting) draw(entry.target);
    }
  }, { rootMargin: "200px" });
  const seen = new Map();
  let buttons = [];

  function fill() {
    observer.disconnect();
    seen.clear();
    buttons = [];
    const rows = described.layers.flatMap((layer, number) => (layer.tab === state.values.tab
      ? [row(layer, number)] : []));
    element.replaceChildren(...rows);
    for (const button of buttons) observer.observe(button);
    mark();
  }

  function row(layer, number) {
    const own = Array.from({ length: layer.heads }, (_, head) => {
      const button = make("button", { type: "button", class: "head", "data-key": `head ${number} ${head}`,
        "data-layer": number, "data-head": head, onclick: () => state.set({ layer: number, head }) },
      make("canvas", { "aria-hidden": "true" }), make("span", { class: "effect", "aria-hidden": "true" }));
      buttons.push(button);
      return button;
    });
    return make("div", { class: "heads-row" },
      make("span", { class: "note", title: layer.name }, String(placeOf(described, number))),
      make("div", { class: "heads-line" }, ...own));
  }

  function mark() {
    const { layer, head } = state.values;
    for (const button of buttons) {
      const [own, number] = [Number(button.dataset.layer), Number(button.dataset.head)];
      const chosen = own === layer && number === head;
      button.setAttribute("aria-pressed", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
      const off = isOff(described, own, number);
      button.classList.toggle("off", off);
      const effect = look.effects?.[own][number];
      button.setAttribute("aria-label", `Enlarge ${headName(described, own, number)}${off ? ", off" : ""}${
        effect === undefined ? "" : `, off alone it changes ${Math.round(100 * effect)} % of the answer`}`);
      button.title = headName(described, own, number);
      button.querySelector(".effect").style.setProperty("--effect", String(effect ?? 0));
    }
    if (buttons.length && !buttons.some((button) => button.tabIndex === 0)) buttons[0].tabIndex = 0;
  }

  async function draw(button) {
    const [number, head] = [Number(button.dataset.layer), Number(button.dataset.head)];
    const weights = await source.layer(number).catch((error) => look.fail(error));
    if (!weights || !button.isConnected) return;
    const layer = described.layers[number];
    const canvas = button.querySelector("canvas");
    if (described.sequences[layer.keys].grid) drawMap(canvas, look, layer, weights, head);
    else drawSmall(canvas, weights, head);
    canvas.dataset.drawn = "yes";
  }

  function drawSeen() {
    for (const [button, visible] of seen) if (visible) draw(button);
  }

  function walk(event) {
    const at = buttons.indexOf(document.activeElement);
    if (at < 0) return;
    const { layer, head } = document.activeElement.dataset;
    const find = (own, number) => buttons.find((one) => one.dataset.layer === own && Number(one.dataset.head) === number);
    const layers = [...new Set(buttons.map((one) => one.dataset.layer))];
    const beside = (step) => find(layers[layers.indexOf(layer) + step] ?? "", Number(head));
    const next = { ArrowRight: buttons[at + 1], ArrowLeft: buttons[at - 1], ArrowDown: beside(1), ArrowUp: beside(-1),
      Home: buttons[0], End: buttons.at(-1) }[event.key];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  state.listen((changed) => {
    if (changed.has("tab")) fill();
    else if (changed.has("layer") || changed.has("head")) mark();
    if (changed.has("at")) {
      const moves = described.layers.some((layer) => described.sequences[layer.keys].grid);
      if (moves) drawSeen();
    }
  });
  look.whenEffects(mark);
  fill();
  return { element, themed: drawSeen };
}

/** Rows are queries, columns keys. What does not fit is brought down: a cell shows its strongest weight. */
export function drawSmall(canvas, weights, head) {
  const { queries: T, keys: S } = weights;
  const [height, width] = [Math.min(T, SIDE), Math.min(S, SIDE)];
  [canvas.width, canvas.height] = [width, height];
  const cells = new Float32Array(width * height);
  const first = head * T;
  for (let t = 0; t < T; t += 1) {
    const [top, start] = [weights.tops[first + t], (first + t) * S];
    const line = Math.floor((t * height) / T) * width;
    for (let s = 0; s < S; s += 1) {
      const value = weights.bytes[start + s] * top;
      const cell = line + Math.floor((s * width) / S);
      if (value > cells[cell]) cells[cell] = value;
    }
  }
  paint(canvas, cells, width, height, 255);
}

function drawMap(canvas, look, layer, weights, head) {
  const sequence = look.described.sequences[layer.keys];
  const [rows, columns] = sequence.grid;
  [canvas.width, canvas.height] = [columns, rows];
  const found = mapOf(look, layer, weights, head).subarray(sequence.front.length);
  paint(canvas, found, columns, rows, found.reduce((most, one) => Math.max(most, one), 1e-9));
}

/** Weights as colours; the root makes small ones visible. */
export function paint(canvas, cells, width, height, top) {
  const { ramp } = palette();
  const image = new ImageData(width, height);
  const colors = new Uint32Array(image.data.buffer);
  const known = new Uint32Array(ramp.buffer);
  for (let i = 0; i < cells.length; i += 1) colors[i] = known[Math.min(255, Math.round(255 * Math.sqrt(cells[i] / top)))];
  canvas.getContext("2d").putImageData(image, 0, 0);
}
