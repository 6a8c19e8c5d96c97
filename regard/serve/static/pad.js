/** A canvas to draw an image on by hand, for models of small images: by pointer, or by keyboard. */

import { make } from "./make.js";

const WIDE = 224; // of the canvas, in pixels
const PAUSE = 120; // milliseconds after a stroke before it is shown to the model

/**
 * @param {{size: [number, number, number], ground: number[], ondraw: (uri: string) => void}} options
 *   `size` is rows, columns and channels of the model's images, `ground` the colour that they begin with
 */
export function createPad({ size: [rows, columns, channels], ground, ondraw }) {
  const [width, height] = [WIDE, Math.round((WIDE * rows) / columns)];
  const thick = WIDE * Math.max(1 / 12, 1.1 / columns);
  const step = WIDE / 16;
  const dark = ground.reduce((sum, one) => sum + one, 0) / ground.length < 128;
  const canvas = make("canvas", { width, height, tabIndex: 0, role: "img", "data-key": "pad",
    "aria-label": "Canvas to draw on. Arrow keys move the pen, Space lowers and lifts it.",
    onpointerdown: down, onpointermove: move, onpointerup: up, onpointercancel: up, onkeydown: walk, onblur: lift });
  const colour = make("input", { type: "color", value: dark ? "#ffffff" : "#d03030", "aria-label": "Colour of the pen" });
  const dot = make("span", { class: "pen", hidden: true });
  const clear = make("button", { type: "button", onclick: () => empty() }, "Clear");
  const element = make("div", { class: "pad" }, make("span", { class: "note" }, "Or draw one"),
    make("div", { class: "pad-canvas" }, canvas, dot), make("div", { class: "row" }, clear, channels === 3 ? colour : null));
  const pen = canvas.getContext("2d");
  let at = null; // the pointer's last place while it draws
  let cursor = { x: width / 2, y: height / 2, lowered: false };
  let timer = 0;

  function empty() {
    clearTimeout(timer);
    pen.fillStyle = `rgb(${ground.join(" ")})`;
    pen.fillRect(0, 0, width, height);
    delete canvas.dataset.drawn;
  }

  function line(from, to) {
    pen.strokeStyle = channels === 3 ? colour.value : dark ? "#ffffff" : "#000000";
    pen.lineWidth = thick;
    pen.lineCap = pen.lineJoin = "round";
    pen.beginPath();
    pen.moveTo(from.x, from.y);
    pen.lineTo(to.x + 0.01, to.y); // a point is seen, too
    pen.stroke();
    canvas.dataset.drawn = "yes";
  }

  function place({ clientX, clientY }) {
    const box = canvas.getBoundingClientRect();
    return { x: ((clientX - box.left) * width) / box.width, y: ((clientY - box.top) * height) / box.height };
  }

  function down(event) {
    if (event.button) return;
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    dot.hidden = true;
    canvas.setPointerCapture(event.pointerId);
    clearTimeout(timer);
    at = place(event);
    line(at, at);
  }

  function move(event) {
    if (!at) return;
    const next = place(event);
    line(at, next);
    at = next;
  }

  function up() {
    if (!at) return;
    at = null;
    done();
  }

  function done() {
    clearTimeout(timer);
    timer = setTimeout(() => ondraw(canvas.toDataURL("image/png")), PAUSE);
  }

  function walk(event) {
    const [x, y] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [0, 0];
    if (event.ctrlKey || event.metaKey || event.altKey || (!x && !y && event.key !== " ")) return;
    event.preventDefault();
    if (event.key === " ") {
      cursor.lowered = !cursor.lowered;
      if (cursor.lowered) line(cursor, cursor);
      else done();
    } else {
      const inside = (value, most) => Math.max(0, Math.min(most, value));
      const next = { ...cursor, x: inside(cursor.x + x * step, width), y: inside(cursor.y + y * step, height) };
      if (cursor.lowered) line(cursor, next);
      cursor = next;
    }
    dot.hidden = false;
    dot.classList.toggle("lowered", cursor.lowered);
    dot.style.left = `${(100 * cursor.x) / width}%`;
    dot.style.top = `${(100 * cursor.y) / height}%`;
  }

  function lift() {
    dot.hidden = true;
    if (!cursor.lowered) return;
    cursor.lowered = false;
    done();
  }

  empty();
  return { element, empty };
}

/** The colour of an image's edge, by its median: what a drawing of its kind begins with. @param {string} uri */
export async function groundOf(uri) {
  const image = new Image();
  image.src = uri;
  await image.decode();
  const { naturalWidth: width, naturalHeight: height } = image;
  const canvas = make("canvas", { width, height });
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const { data } = pen.getImageData(0, 0, width, height);
  const edge = [[], [], []];
  for (let place = 0; place < width * height; place += 1) {
    const [row, column] = [Math.floor(place / width), place % width];
    if (row && column && row < height - 1 && column < width - 1) continue;
    for (const channel of [0, 1, 2]) edge[channel].push(data[4 * place + channel]);
  }
  return edge.map((values) => values.sort((a, b) => a - b)[values.length >> 1]);
}
