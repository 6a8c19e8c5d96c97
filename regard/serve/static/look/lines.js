/** One head as lines between two columns of tokens: left those that look, right those that are seen. */

import { make } from "../make.js";
import { css, palette, sized } from "./palette.js";
import { askers } from "./sequences.js";

const NAMES = 104; // pixels for each column of names
const BETWEEN = Math.max(72, Math.min(190, innerWidth - 2 * NAMES - 80)); // a phone has less room
const WIDTH = 2 * NAMES + BETWEEN;
const LEAST = 0.03; // weaker lines would only be mist
const HEIGHT = 560; // pixels that are drawn; longer texts are scrolled through

/** @param {import("./inside.js").Look} look */
export function createLines(look) {
  const { described, state } = look;
  const base = make("canvas", { "aria-hidden": "true", "data-lines": "base" });
  const over = make("canvas", { class: "over", "aria-hidden": "true", "data-lines": "over", onpointermove: point,
    onpointerleave: state.leave, onclick: pick });
  const inner = make("div", { class: "layers" }, base, over);
  const whole = make("div", {}, inner);
  const element = make("div", { class: "lines-box", role: "img", "aria-label": "Lines from each token to those it reads",
    onscroll: scroll }, whole);
  let shown = null;
  let above = 0; // pixels scrolled; to ask for them at every line would make the browser lay out the page anew
  let step = 20;

  const tokens = (side) => shown.names[side];
  const middle = (index) => (index + 0.5) * step + 4 - above;
  const inSight = (...rows) => !(rows.every((y) => y < -step) || rows.every((y) => y > HEIGHT + step));

  function scroll() {
    above = element.scrollTop;
    requestAnimationFrame(draw);
  }

  function draw() {
    if (!shown) return;
    const { weights, head } = shown;
    const count = Math.max(weights.queries, weights.keys);
    step = count > 120 ? 12 : count > 48 ? 16 : 22;
    whole.style.height = `${count * step + 8}px`;
    const height = Math.min(HEIGHT, count * step + 8);
    const pen = sized(base, WIDTH, height);
    for (const own of [pen, sized(over, WIDTH, height)]) { // here only: to set a font makes the browser style the page
      own.font = `${Math.min(13, step - 3)}px ui-monospace, "DejaVu Sans Mono", monospace`;
      own.textBaseline = "middle";
    }
    const ink = css(palette().ink);
    for (const side of ["queries", "keys"]) tokens(side).forEach((_, index) => write(pen, side, index, ink));
    const { accent } = palette();
    for (let t = 0; t < weights.queries; t += 1) {
      const row = weights.reads(head, t);
      for (let s = 0; s < row.length; s += 1) if (row[s] >= LEAST) line(pen, t, s, row[s], accent, 0.55);
    }
    base.dataset.drawn = `${state.values.layer} ${head}`;
    drawOver();
  }

  function write(pen, side, index, color) {
    if (!inSight(middle(index))) return;
    pen.textAlign = side === "queries" ? "right" : "left";
    pen.fillStyle = color;
    pen.fillText(tokens(side)[index], side === "queries" ? NAMES - 8 : NAMES + BETWEEN + 8, middle(index), NAMES - 10);
  }

  function line(pen, t, s, weight, color, most) {
    const [left, right] = [NAMES, NAMES + BETWEEN];
    if (!inSight(middle(t), middle(s))) return;
    pen.strokeStyle = css(color, Math.min(1, 0.06 + most * Math.sqrt(weight)));
    pen.lineWidth = 0.5 + 3.5 * weight;
    pen.beginPath();
    pen.moveTo(left, middle(t));
    pen.bezierCurveTo(left + BETWEEN / 2, middle(t), left + BETWEEN / 2, middle(s), right, middle(s));
    pen.stroke();
  }

  /** What the token that is pointed at reads, and which read it; the rest goes pale. */
  function drawOver() {
    const { at } = state.values;
    const pen = over.getContext("2d");
    pen.clearRect(0, 0, over.width, over.height);
    const mine = shown && at && (at.sequence === shown.layer.queries || at.sequence === shown.layer.keys);
    base.classList.toggle("pale", Boolean(mine));
    over.dataset.lines = "over";
    over.dataset.count = "0";
    if (!mine) return;
    const { layer, weights, head } = shown;
    const { accent, warm } = palette();
    const bright = { queries: new Map(), keys: new Map() };
    if (at.sequence === layer.queries) {
      bright.queries.set(at.index, accent);
      weights.reads(head, at.index).forEach((weight, s) => {
        if (weight < LEAST / 3) return;
        line(pen, at.index, s, weight, accent, 0.94);
        if (weight >= LEAST) bright.keys.set(s, accent);
      });
    }
    if (at.sequence === layer.keys) {
      bright.keys.set(at.index, warm);
      weights.readBy(head, at.index).forEach((weight, t) => {
        if (weight < LEAST / 3 || (at.sequence === layer.queries && t === at.index)) return;
        line(pen, t, at.index, weight, warm, 0.94);
        if (weight >= LEAST && !bright.queries.has(t)) bright.queries.set(t, warm);
      });
    }
    for (const [side, found] of Object.entries(bright)) found.forEach((color, index) => write(pen, side, index, css(color)));
    over.dataset.count = String(bright.keys.size + bright.queries.size);
  }

  function placeAt(event) {
    const box = over.getBoundingClientRect();
    const index = Math.floor((event.clientY - box.top + above - 4) / step);
    const side = event.clientX - box.left < WIDTH / 2 ? "queries" : "keys";
    return shown && index >= 0 && index < tokens(side).length ? [shown.layer[side], index] : null;
  }

  function point(event) {
    const found = placeAt(event);
    if (found) state.point(...found);
    else state.leave();
  }

  function pick(event) {
    const found = placeAt(event);
    if (found) state.pick(...found);
  }

  return {
    element,
    draw,
    point: drawOver,
    show(layer, weights, head) {
      const names = { queries: askers(described, layer), keys: described.sequences[layer.keys].tokens };
      shown = { layer, weights, head, names };
      draw();
    },
  };
}
