/** What an output depends on, by several methods: what a model attends to is not yet what it uses. */

import { make } from "../make.js";
import { draw } from "./explained.js";

const VIEWS = {
  rollout: ["Rollout", "How much of each token has come to each output, if every layer keeps half of what it had and takes half of what it attends to."],
  gradient: ["Gradient", "How much of each token has come to each output along weight × gradient: only paths that raise the output count."],
  ablation: ["Heads off", "How much the loss rises when a head is ablated."],
  lens: ["Lens", "The output of the model if it ended behind an earlier block."],
  patch: ["Patch", "The model reads another text of as many tokens. Then the state of one position, or one head, for this text is put back: how much of this text's answer returns?"],
  agreement: ["Agreement", "Attention, rollout and gradient beside what happens when a token is taken away (ablation)."],
};

/** @type {import("./inside.js").Panel} */
export const panel = {
  name: "rests",
  title: "What it depends on",
  fits: ({ views }) => views.length > 0,

  mount(host, look) {
    const { described, state, source } = look;
    const { answer } = described;
    const views = described.views.filter((view) => source.live || view !== "patch"); // a file cannot read another text
    const buttons = views.map((view) => make("button", { type: "button", "aria-pressed": "false", "data-view": view, "data-key": `view ${view}`,
      onclick: () => {
        choose(view);
        if (!other.hidden) words.focus();
      } }, VIEWS[view][0]));
    const every = make("option", { value: "" }, "all");
    const output = make("select", { "aria-label": "Output", "data-key": "output", onchange: aim }, every, ...outputs());
    const about = make("label", { class: "check" }, "Output", output);
    const words = make("input", { type: "text", value: state.values.against ?? described.input.read ?? described.input.text ?? "",
      "data-key": "against", autocomplete: "off", oninput: () => state.set({ against: words.value }) });
    const other = make("form", { class: "row against", hidden: true, onsubmit: compare },
      make("label", { class: "field" }, make("span", {}, "Another text: change a word of this one"), words), make("button", { type: "submit" }, "Compare"));
    const told = make("p", { class: "note" }, "Attention shows where the model looks. Choose a method to explain what its answer depends on.");
    const shown = make("div", { class: "panel-body", "data-said": "rests" });
    const said = make("p", { class: "note pointed", "data-said": "cell" });
    let chosen = null;
    let drawn = null;
    let turn = 0;

    /** A model that writes is asked about all that it writes, or about one token. */
    function outputs() {
      if (answer.kind !== "next" || !source.live) return [];
      const { tokens } = described.sequences[answer.sequence];
      return Array.from({ length: answer.rows }, (_, row) => make("option", { value: String(row) }, `behind ${tokens[row]} (token ${row})`));
    }

    function aim() {
      state.set({ output: output.value });
      if (chosen) ask();
    }

    function choose(view) {
      chosen = view;
      state.set({ view });
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.view === view));
      told.textContent = VIEWS[view][1];
      other.hidden = view !== "patch" || !source.live;
      every.textContent = view === "patch" ? "the last, or where they part" : "all";
      if (other.hidden) return ask();
      turn += 1;
      show([]);
    }

    function compare(event) {
      event.preventDefault();
      ask();
    }

    async function ask() {
      const own = (turn += 1);
      show([make("p", { class: "status busy", role: "status" }, "Working…")]);
      try {
        const found = await source.view(chosen, { ...(output.value ? { at: Number(output.value) } : {}),
          ...(chosen === "patch" ? { against: words.value } : {}) });
        if (own !== turn) return;
        drawn = draw(found, look, say);
        show([...drawn.parts, ...(found.left_out ? [make("p", { class: "note" }, `${found.left_out} outputs before these are left out; choose one above.`)] : [])]);
        mark();
        look.announce(shown.querySelector("p")?.textContent ?? "");
      } catch (error) {
        if (own === turn) show([make("p", { class: "problem", role: "alert" }, error.message)]);
      }
    }

    function show(parts) {
      shown.replaceChildren(...parts);
      say("");
    }

    function say(text) {
      said.textContent = text;
    }

    const mark = () => drawn?.heads?.(state.values.layer, state.values.head);

    about.hidden = output.options.length < 2;
    if ([...output.options].some(({ value }) => value === state.values.output)) output.value = state.values.output;
    host.append(make("div", { class: "row" }, make("div", { class: "choices", role: "group", "aria-label": "View" }, ...buttons), about),
      told, other, shown, said);
    state.listen((changed) => (changed.has("layer") || changed.has("head")) && mark());
    if (views.includes(state.values.view)) choose(state.values.view);
    if (!other.hidden && state.values.against !== null) ask(); // it was asked of the look before
  },
};
