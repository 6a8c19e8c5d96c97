/** Colours for canvases, as the theme has them now, and a word when it changes. */

import { make } from "../make.js";

const NAMES = ["paper", "sheet", "ink", "soft", "line", "edge", "accent", "wash", "warm"];
let known = null;
const listeners = new Set();

/** Colours as [red, green, blue], and a ramp of 256 from the sheet to deep ink. */
export function palette() {
  if (known) return known;
  const probe = make("span");
  document.body.append(probe);
  known = {};
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    known[name] = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  }
  probe.remove();
  const deep = mix(known.accent, known.ink, 0.45);
  known.ramp = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i += 1) {
    const share = i / 255;
    const color = share < 0.6 ? mix(known.sheet, known.accent, share / 0.6) : mix(known.accent, deep, (share - 0.6) / 0.4);
    known.ramp.set([...color, 255], 4 * i);
  }
  return known;
}

const mix = (one, other, share) => one.map((value, i) => value + (other[i] - value) * share);

/** @param {number[]} color  @param {number} [alpha] */
export const css = (color, alpha = 1) => `rgb(${color.map(Math.round).join(" ")} / ${alpha})`;

/** Calls back when the theme changes; returns what ends that. */
export function whenThemed(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function change() {
  known = null;
  for (const listener of listeners) listener();
}
new MutationObserver(change).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change);

/** A canvas that is sharp on every screen, and its pen; sizes are in CSS pixels. */
export function sized(canvas, width, height) {
  const dense = Math.min(2, devicePixelRatio || 1);
  canvas.width = Math.round(width * dense);
  canvas.height = Math.round(height * dense);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  return pen;
}
