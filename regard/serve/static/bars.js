/** Probabilities as bars: for labels, for next tokens, and in the bubble over a token. */

import { make, percent } from "./make.js";

/**
 * @typedef {{label: string, probability: number, note?: string, chosen?: boolean, disabled?: boolean}} Bar
 * @param {{name: string, onpick?: (index: number) => void}} options  with `onpick` each bar is a button
 */
export function createBars({ name, onpick }) {
  const element = make("ol", { class: "bars", "aria-label": name });

  function row({ label, probability, note, chosen, disabled }, index) {
    const fill = make("span", { class: "fill" });
    fill.style.width = `${100 * probability}%`;
    const parts = [make("span", { class: "label" }, label, ...(note ? [" ", make("small", {}, note)] : [])), make("span", { class: "track" }, fill),
      make("span", { class: "number" }, percent(probability))];
    const pick = { type: "button", disabled: Boolean(disabled), onclick: () => onpick(index) };
    const body = onpick ? make("button", { class: "bar", ...pick }, ...parts) : make("div", { class: "bar" }, ...parts);
    return make("li", { class: chosen ? "chosen" : "" }, body);
  }

  return {
    element,
    /** @param {Bar[]} bars */
    show(bars) {
      const focused = element.contains(document.activeElement);
      element.replaceChildren(...bars.map(row));
      if (focused) element.querySelector("button:enabled")?.focus(); // who walks by keyboard goes on from the best one
    },
  };
}
