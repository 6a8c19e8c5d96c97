/** Parts of a model other than attention, at work on this input. A view is computed when it is chosen. */

import { make } from "../make.js";
import { drawFeedForward } from "./feedforward.js";
import { drawSearch } from "./search.js";

const VIEWS = {
  beam: ["Beam search", "The most probable continuations are carried on together: what each step considered, kept and dropped, and greedy choice beside it.", drawSearch],
  ffn: ["Feed-forward layers", "What attention and the feed-forward layer of each block add to the residual stream, what is lost when one adds nothing, and what single neurons hold.", drawFeedForward],
};

/** @type {import("./inside.js").Panel} */
export const panel = {
  name: "mechanisms",
  title: "Its parts at work",
  fits: ({ mechanisms }) => mechanisms?.length > 0,

  mount(host, look) {
    const { described, state, source } = look;
    const buttons = described.mechanisms.map((view) => make("button", { type: "button", "aria-pressed": "false", "data-mechanism": view,
      "data-key": `mechanism ${view}`, onclick: () => choose(view) }, VIEWS[view][0]));
    const told = make("p", { class: "note" }, "Choose a part to see what it does with this input.");
    const shown = make("div", { class: "panel-body", "data-said": "mechanism" });
    const said = make("p", { class: "note pointed" });
    let turn = 0;

    const say = (text) => {
      said.textContent = text;
    };

    async function choose(view) {
      const own = (turn += 1);
      state.set({ mechanism: view });
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.mechanism === view));
      told.textContent = VIEWS[view][1];
      say("");
      shown.replaceChildren(make("p", { class: "status busy", role: "status" }, "Working…"));
      try {
        const found = await source.view(view);
        if (own !== turn) return;
        shown.replaceChildren(...VIEWS[view][2](found, say));
        look.announce(shown.querySelector("p")?.textContent ?? "");
      } catch (error) {
        if (own === turn) shown.replaceChildren(make("p", { class: "problem", role: "alert" }, error.message));
      }
    }

    host.append(make("div", { class: "choices", role: "group", "aria-label": "Part" }, ...buttons), told, shown, said);
    if (described.mechanisms.includes(state.values.mechanism)) choose(state.values.mechanism);
  },
};
