/** Settings in a disclosure, and boxes for text; both remember what was put in. */

import { make } from "./make.js";
import { recall, remember } from "./memory.js";

/**
 * @typedef {{name: string, label: string, kind: "number" | "lines" | "text", start?: number, min?: number,
 *            max?: number, step?: number, note?: string}} Setting
 */

/** How every generating model is asked. @type {Setting[]} */
export const SAMPLING = [
  { name: "max_tokens", label: "Most tokens", kind: "number", start: 128, min: 1, step: 1 },
  { name: "temperature", label: "Temperature", kind: "number", start: 0.8, min: 0, max: 2, step: 0.1,
    note: "0: always the most probable" },
  { name: "top_p", label: "Top-p", kind: "number", start: 1, min: 0, max: 1, step: 0.05 },
  { name: "seed", label: "Seed", kind: "number", step: 1, note: "empty: another one each time" },
  { name: "stop", label: "Stop at", kind: "lines", note: "one a line; \\n is a new line" },
];

/**
 * @param {string} view  the name under which the values are kept
 * @param {Setting[]} settings
 */
export function createSettings(view, settings, title = "Settings") {
  const kept = recall(`settings.${view}`, {});
  const inputs = new Map(settings.map((each) => [each, inputFor(each, kept[each.name] ?? each.start ?? "")]));
  const summary = make("summary", {}, title);
  const fields = [...inputs].map(([setting, input]) =>
    make("label", { class: setting.kind === "number" ? "field" : "field wide" }, make("span", {}, setting.label), input,
      setting.note ? make("small", { class: "note" }, setting.note) : null));
  const element = make("details", { class: "settings", oninput: keep }, summary,
    make("div", { class: "fields" }, ...fields));

  function keep() {
    remember(`settings.${view}`, Object.fromEntries([...inputs].map(([{ name }, input]) => [name, input.value])));
  }

  /** The fields of a request; what is empty is left to the server. */
  function values() {
    const filled = [...inputs].filter(([, input]) => input.value !== "");
    return Object.fromEntries(filled.map(([{ name, kind }, input]) => [name, READ[kind](input.value)]));
  }

  /** @param {Record<string, any>} next  values by name; empty ones are left to the server */
  function set(next) {
    for (const [{ name }, input] of inputs) if (name in next) input.value = String(next[name] ?? "");
    keep();
  }

  return { element, values, set };
}

function inputFor({ kind, min, max, step }, value) {
  if (kind !== "number") return make("textarea", { rows: 2, spellcheck: false, value });
  const inputMode = step === 1 ? "numeric" : "decimal";
  return make("input", { type: "number", min, max, step, value: String(value), inputMode });
}

/** What a field of each kind says. */
const READ = {
  number: Number,
  text: String,
  lines: (text) => text.split("\n").filter((line) => line !== "").map((line) => line.replaceAll("\\n", "\n")),
};

/**
 * A labelled text area whose text outlives a reload and a change of view.
 * @param {{name: string, label: string, rows?: number, placeholder?: string}} options
 */
export function createTextBox({ name, label, rows = 5, placeholder }) {
  const value = recall(`text.${name}`, "", "sessionStorage");
  const area = make("textarea", { rows, placeholder, value, oninput: keep });

  function keep() {
    remember(`text.${name}`, area.value, "sessionStorage");
  }

  return {
    element: make("label", { class: "text" }, make("span", {}, label), area),
    area,
    /** @param {string} text */
    set(text) {
      area.value = text;
      area.dispatchEvent(new Event("input"));
    },
  };
}
