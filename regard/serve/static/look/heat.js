/** A table whose cells are as deep in colour as their numbers; arrow keys walk through it, and each cell says what it is. */

import { make } from "../make.js";

const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

/**
 * @typedef {object} Heat
 * @property {string} name  of the table, for those who hear it
 * @property {string} [corner]  what rows and columns are
 * @property {string[]} rows  @property {string[]} columns
 * @property {(number | null)[][]} values  null is an empty cell; below zero the colour is another one
 * @property {number} [top]  the end of the scale; without, each row has its own
 * @property {(row: number, column: number) => string} tell  a cell in words
 * @property {(row: number, column: number) => string} [write]  what stands in it
 * @property {(row: number, column: number) => void} [pick]  makes buttons of the cells
 */

/** @param {Heat} heat  @param {(text: string) => void} say  told what is pointed at */
export function createHeat({ name, corner = "", rows, columns, values, top, tell, write, pick }, say) {
  const cells = values.map((row, at) => {
    const end = top ?? Math.max(1e-12, ...row.map((value) => Math.abs(value ?? 0)));
    return row.map((value, column) => (value === null ? make("td", { class: "none" }) : cell(at, column, value / end)));
  });
  const body = make("tbody", {}, ...cells.map((row, at) => make("tr", {}, make("th", { scope: "row" }, rows[at]), ...row)));
  const head = make("thead", {}, make("tr", {}, make("td", { class: "note" }, corner),
    ...columns.map((column) => make("th", { scope: "col" }, make("span", {}, column)))));
  const table = make("table", { class: write ? "heat worded" : "heat", role: "grid", "aria-label": `${name}; arrow keys walk`,
    onkeydown: walk, onpointerover: point, onfocusin: point, onpointerleave: () => say("") }, head, body);
  const first = body.querySelector("td:not(.none)");
  if (first) target(first).tabIndex = 0;

  function cell(row, column, share) {
    const [told, text] = [tell(row, column), write?.(row, column) ?? ""];
    const inner = pick ? make("button", { type: "button", tabIndex: -1, "aria-label": told, onclick: () => pick(row, column) }, text) : null;
    const element = make("td", { class: share < 0 ? "less" : "", "data-told": told }, inner ?? text);
    if (!inner) {
      element.tabIndex = -1;
      element.setAttribute("aria-label", told);
    }
    element.style.setProperty("--weight", Math.min(1, Math.abs(share)).toFixed(4));
    return element;
  }

  function point(event) {
    const { told } = event.target.closest("tbody td")?.dataset ?? {};
    if (told) say(told);
  }

  function walk(event) {
    const now = event.target.closest("tbody td");
    const step = STEPS[event.key];
    if (!now || !step) return;
    event.preventDefault();
    const next = body.rows[now.parentNode.sectionRowIndex + step[0]]?.cells[now.cellIndex + step[1]];
    if (!next || next.tagName !== "TD" || next.classList.contains("none")) return;
    target(now).tabIndex = -1;
    target(next).tabIndex = 0;
    target(next).focus();
  }

  return { element: make("div", { class: "scroll tall" }, table), table, cells };
}

/** What of a cell takes the focus. */
const target = (cell) => cell.firstElementChild ?? cell;

/** Two digits or three, and nothing of what is as good as zero. */
export function short(value) {
  if (Math.abs(value) < 0.0005) return "·";
  return value.toFixed(Math.abs(value) < 0.0995 ? 3 : 2).replace("-", "−");
}
