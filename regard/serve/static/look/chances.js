/** What the model finds likely, as the temperature moves; for models that write, token by token, another one if you like. */

import { createBars } from "../bars.js";
import { make, percent, visible } from "../make.js";
import { nameOf } from "./sequences.js";

const SHOWN = 10;
const TITLES = { next: "Next token", fill: "What stands here", labels: "Label", tags: "Tag", span: "Answer", boxes: "What a query found",
  match: "Which text fits" };

/** @type {import("./inside.js").Panel} */
export const panel = {
  name: "chances",
  title: "Answer",
  fits: ({ answer }) => answer.kind !== "vector",

  mount(host, look) {
    const { described, state, source } = look;
    const { answer, temperatures } = described;
    const writes = answer.kind === "next";
    const said = make("p", { class: "note", "data-said": "chances" });
    const bars = createBars({ name: TITLES[answer.kind], onpick: writes && source.live ? pick : undefined });
    const slider = make("input", { type: "range", min: 0, max: temperatures.length - 1, step: 1, "data-key": "temperature",
      value: String(nearest(temperatures, state.values.temperature)),
      oninput: () => state.set({ temperature: temperatures[Number(slider.value)] }) });
    const degree = make("output", { class: "degree" });
    const ahead = make("p", { class: "ahead", "data-said": "ahead" });
    let found = null;
    let shown = [];
    let turn = 0;

    /** The row of the token that is picked; the best place to ask otherwise. */
    function row() {
      const { pin } = state.values;
      return pin && pin.sequence === answer.sequence && pin.index < answer.rows ? pin.index : answer.row;
    }

    async function ask() {
      const own = (turn += 1);
      try {
        const told = await source.chances(row());
        if (own !== turn) return;
        found = told;
        show();
      } catch (error) {
        if (own === turn) look.fail(error);
      }
    }

    function show() {
      const { temperature } = state.values;
      degree.textContent = temperature.toFixed(2);
      slider.setAttribute("aria-valuetext", `temperature ${temperature.toFixed(2)}`);
      if (!found) {
        said.textContent = "This file is without the chances of this place: look at the model itself, regard look RUN INPUT";
        return bars.show([]);
      }
      const place = nearest(temperatures, temperature);
      const now = softmax(found.scores, found.rest[place], temperature);
      const before = described.off.length ? softmax(found.whole.scores, found.whole.rest[place], temperature) : null;
      shown = now.slice(0, SHOWN).map((probability, i) => ({ probability, i }));
      bars.show(shown.map(({ probability, i }) => ({
        label: before ? `${visible(found.names[i])} (was ${percent(before[i])})` : visible(found.names[i]),
        probability, chosen: writes && nextIs(found.ids[i]),
      })));
      const rest = 1 - shown.reduce((sum, { probability }) => sum + probability, 0);
      said.textContent = `${where()} All others together: ${percent(Math.max(0, rest))}.`;
    }

    const nextIs = (id) => described.sequences[answer.sequence].ids[row() + 1] === id;

    function where() {
      if (answer.titles) return `${answer.titles[row()]}: `;
      if (answer.sequence === null) return "";
      const name = nameOf(described.sequences[answer.sequence], row());
      return { next: `Behind ${name} (token ${row()}).`, boxes: `${name}.` }[answer.kind] ?? `At ${name} (token ${row()}).`;
    }

    /** Another token: what was written behind this place is left out, and the model goes on from there. */
    function pick(index) {
      go([...chosen().slice(0, row() + 1 - first()), found.ids[shown[index].i]]);
    }

    /** Tokens that may be taken back: a translation, or what was chosen behind a text. */
    const chosen = () => described.input.target;
    const first = () => described.sequences[answer.sequence].ids.length - chosen().length;

    /** The model's own translation or caption is shown, from its start. */
    const whole = () => described.own && answer.sequence > 0;
    const more = () => described.ahead.map(({ id }) => id).filter((id) => !described.ends.includes(id));

    function go(target) {
      look.announce(`Went on with ${target.length} tokens`);
      look.again({ target, at: null });
    }

    function tellAhead() {
      const words = (some) => some.map(({ token }) => token).join("").replaceAll("·", " ") || "nothing more";
      if (!described.ahead) return;
      ahead.replaceChildren(make("strong", {}, whole() ? "It would write: " : "It would go on: "), words(described.ahead));
      if (described.before) ahead.append(make("br"), make("span", { class: "note" }, `With all heads on: ${words(described.before)}`));
    }

    const button = (name, key, onclick, disabled) =>
      make("button", { type: "button", "data-key": key, onclick, disabled: Boolean(disabled) }, name);
    const steps = writes && source.live ? make("div", { class: "row" },
      button("Step", "step", () => go([...(whole() ? [] : chosen()), more()[0]]), more().length === 0),
      button("Back", "back", () => go(chosen().slice(0, -1)), chosen().length === 0),
      button("From the start", "start", () => go([]), chosen().length === 0),
      button("Go on", "go on", () => go([...(whole() ? [] : chosen()), ...more()]), more().length === 0)) : null;
    const note = writes && source.live ? make("p", { class: "note" }, "Pick a token to go on with it; pick one in the text above to ask what ",
      "else could have stood behind it.") : null;
    const parts = [make("label", { class: "slider" }, make("span", {}, "Temperature"), slider, degree), said, bars.element, note, steps, ahead];
    host.append(...parts.filter(Boolean));
    state.listen((changed) => {
      if (changed.has("pin")) ask();
      else if (changed.has("temperature")) show();
    });
    tellAhead();
    ask();
  },
};

/** Exact at every stop of the slider: the sum over all others is known there. */
export function softmax(scores, rest, temperature) {
  const scaled = scores.map((score) => score / temperature);
  const top = Math.max(...scaled, rest ?? -Infinity);
  const parts = scaled.map((score) => Math.exp(score - top));
  const sum = parts.reduce((total, one) => total + one, 0) + (rest === null ? 0 : Math.exp(rest - top));
  return parts.map((one) => one / sum);
}

const nearest = (list, value) => list.reduce((best, one, i) => (Math.abs(one - value) < Math.abs(list[best] - value) ? i : best), 0);
