/** The most probable outputs, as the temperature moves; for generative models, token by token, another one if you like. */

import { createBars } from "../bars.js";
import { make, percent } from "../make.js";
import { nameOf } from "./sequences.js";

const SHOWN = 10;
const TITLES = { next: "Next token", fill: "Hidden token", labels: "Label", tags: "Tag", span: "Answer", boxes: "What a query found",
  match: "Which text fits", number: "Number" };

/** @type {import("./inside.js").Panel} */
export const panel = {
  name: "probabilities",
  title: "Answer",
  fits: ({ answer }) => answer.kind !== "vector",

  mount(host, look) {
    const { described, state, source } = look;
    const { answer, temperatures } = described;
    if (answer.kind === "number") return void host.append(make("p", { class: "ahead", "data-said": "number" }, answer.value.toPrecision(5)));
    const sequence = described.sequences[answer.sequence];
    const picks = answer.kind === "next" && source.live;
    const slider = make("input", { type: "range", min: 0, max: temperatures.length - 1, step: 1, "data-key": "temperature",
      value: String(nearest(temperatures, state.values.temperature)),
      oninput: () => state.set({ temperature: temperatures[Number(slider.value)] }) });
    const degree = make("output", { class: "degree" });
    const ahead = make("p", { class: "ahead", "data-said": "ahead" });
    const groups = answer.titles ? answer.titles.map((title, own) => group(title, () => own)) : [group(TITLES[answer.kind], row)];

    /** The row of the token that is picked; the best place to ask otherwise. */
    function row() {
      const { pin } = state.values;
      return pin && pin.sequence === answer.sequence && pin.index < answer.rows ? pin.index : answer.row;
    }

    /** The probabilities of one row as bars; a span has two, where it begins and where it ends. */
    function group(name, which) {
      const said = make("p", { class: "note", "data-said": "probabilities" });
      const bars = createBars({ name, onpick: picks ? (index) => pick(found.ids[index]) : undefined });
      let found; // null where a file is without
      let turn = 0;

      async function ask() {
        const own = (turn += 1);
        try {
          const told = await source.probabilities(which());
          if (own !== turn) return;
          found = told;
          show();
        } catch (error) {
          if (own === turn) look.fail(error);
        }
      }

      function show() {
        const { temperature } = state.values;
        if (found === undefined) return;
        if (!found) {
          said.textContent = "This file is without the probabilities at this position: look at the model itself, regard look RUN INPUT";
          return bars.show([]);
        }
        const place = nearest(temperatures, temperature);
        const now = softmax(found.logits, found.rest[place], temperature).slice(0, SHOWN);
        const before = described.off.length ? softmax(found.whole.logits, found.whole.rest[place], temperature) : null;
        bars.show(now.map((probability, i) => ({
          label: found.names[i] || "∅", note: before ? `(was ${percent(before[i])})` : "", probability,
          chosen: answer.kind === "next" && sequence.ids[which() + 1] === found.ids[i], disabled: picks && !isFree(),
        })));
        const rest = 1 - now.reduce((sum, one) => sum + one, 0);
        const others = found.logits.length > SHOWN || found.rest[place] !== null;
        said.textContent = [where(), others ? `All others together: ${percent(Math.max(0, rest))}.` : "", picks && !isFree() ? given() : ""]
          .filter(Boolean).join(" ");
      }

      const title = answer.titles ? make("h3", {}, name[0].toUpperCase() + name.slice(1)) : null;
      return { ask, show, parts: [title, said, bars.element] };
    }

    function where() {
      if (!sequence) return "";
      const name = nameOf(sequence, row());
      return { next: `Behind ${name} (token ${row()}).`, boxes: `${name}.` }[answer.kind] ?? `At ${name} (token ${row()}).`;
    }

    /** Whether another token may stand behind the place that is asked about. */
    const isFree = () => row() + 1 >= answer.fixed;
    const given = () => `What follows is fixed: another one can be chosen behind ${nameOf(sequence, answer.fixed - 1)} (token ${answer.fixed - 1}), or later.`;

    /** Another token: what stood behind this place is left out, and the model goes on from there. */
    function pick(id) {
      const end = row() + 1;
      if (end < first()) go([id], end);
      else go([...chosen().slice(0, end - first()), id]);
    }

    /** Tokens that may be taken back: a translation, or what was chosen behind a text; they begin at the first. */
    const chosen = () => described.input.target;
    const first = () => sequence.ids.length - chosen().length;
    const kept = () => described.input.kept ?? null;

    /** The model's own translation or caption is shown, from its start. */
    const whole = () => described.own && answer.sequence > 0;
    const more = () => described.ahead.map(({ id }) => id).filter((id) => !described.ends.includes(id));

    /** Another pass with these tokens behind the text, or behind what is kept of it. */
    function go(target, keep = kept()) {
      look.announce(`Went on with ${target.length} tokens`);
      look.again({ target, kept: keep, at: null });
    }

    function tellAhead() {
      const words = (some) => some.map(({ token }) => token).join("").replaceAll("·", " ") || "nothing more";
      if (!described.ahead || sequence.grid) return;
      ahead.replaceChildren(make("strong", {}, whole() ? "Greedy, it would write: " : "It would go on: "), words(described.ahead));
      if (described.before) ahead.append(make("br"), make("span", { class: "note" }, `With all heads on: ${words(described.before)}`));
    }

    const button = (name, key, onclick, disabled) =>
      make("button", { type: "button", "data-key": key, onclick, disabled: Boolean(disabled) }, name);

    /** An image is painted to its end at once: there are no steps ahead. */
    function buttons() {
      const [step, rest] = sequence.grid ? [null, null] : [
        button("Step", "step", () => go([...(whole() ? [] : chosen()), more()[0]]), more().length === 0),
        button("Go on", "go on", () => go([...(whole() ? [] : chosen()), ...more()]), more().length === 0)];
      return make("div", { class: "row" }, step, button("Back", "back", () => go(chosen().slice(0, -1)), chosen().length === 0),
        button("From the start", "start", () => go([], null), chosen().length === 0 && kept() === null), rest);
    }

    function show() {
      const { temperature } = state.values;
      degree.textContent = temperature.toFixed(2);
      slider.setAttribute("aria-valuetext", `temperature ${temperature.toFixed(2)}`);
      for (const one of groups) one.show();
    }

    const note = picks ? make("p", { class: "note" }, `Pick ${sequence.grid ? "a colour" : "a token"} to go on with it; pick ${
      sequence.grid ? "a pixel of the image" : "one in the text above"} to see what else could have followed it.`) : null;
    const parts = [make("label", { class: "slider" }, make("span", {}, "Temperature"), slider, degree), ...groups.flatMap((one) => one.parts),
      note, picks ? buttons() : null, ahead];
    host.append(...parts.filter(Boolean));
    state.listen((changed) => {
      if (changed.has("pin")) for (const one of groups) one.ask();
      else if (changed.has("temperature")) show();
    });
    tellAhead();
    show();
    for (const one of groups) one.ask();
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
