/** The tokens of a text as the tokenizer made them. The one pointed at colours those it reads, and those that read it. */

import { make, percent } from "../make.js";
import { strongest } from "./unpack.js";
import { nameOf } from "./sequences.js";

/** @type {import("./inside.js").Panel} */
export const panel = {
  name: "tokens",
  title: "Tokens",
  fits: ({ sequences }) => sequences.some((one) => one.tokens),

  mount(host, look) {
    const { described, state } = look;
    const strips = described.sequences.map((sequence, number) => (sequence.tokens ? strip(sequence, number) : null));
    const said = make("p", { class: "reading", "data-said": "tokens" });
    let lit = []; // tokens that are coloured now

    function strip(sequence, number) {
      const buttons = sequence.tokens.map((token, index) => make("button", {
        type: "button", class: "tok", tabIndex: index === 0 ? 0 : -1, "data-key": `token ${number} ${index}`,
        onpointerenter: () => state.point(number, index), onpointerleave: state.leave,
        onfocus: () => state.pick(number, index), onclick: () => state.pick(number, index),
        "aria-label": `${token}, token ${index}${sequence.ids ? `, id ${sequence.ids[index]}` : ""}`,
      }, make("span", { class: sequence.segments?.[index] ? "word second" : "word" }, token),
      sequence.ids && sequence.name !== "queries" ? make("small", {}, String(sequence.ids[index])) : null));
      const group = make("div", { class: "toks", role: "toolbar", onkeydown: walk,
        "aria-label": `${sequence.title}: ${buttons.length} tokens with their ids; arrow keys walk` }, ...buttons);
      host.append(make("h3", {}, sequence.title, make("span", { class: "note" }, ` ${buttons.length} tokens`)), group);
      return buttons;
    }

    function walk(event) {
      if (event.key === "Escape") {
        document.activeElement.blur();
        return state.free();
      }
      const own = strips.find((buttons) => buttons?.includes(document.activeElement));
      const at = own?.indexOf(document.activeElement);
      const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: own?.length - 1 }[event.key];
      if (next === undefined || !own?.[next]) return;
      event.preventDefault();
      for (const [index, button] of own.entries()) button.tabIndex = index === next ? 0 : -1;
      own[next].focus();
      look.announce(said.textContent);
    }

    function show() {
      for (const button of lit) {
        button.classList.remove("current");
        button.style.removeProperty("--reads");
        button.style.removeProperty("--read-by");
      }
      lit = [];
      const { at, head } = state.values;
      const { layer, weights } = look;
      if (!at || !layer) {
        said.textContent = layer ? "Point at a token, or walk with ← →: blue is what it reads, orange the tokens that read it." : "";
        return;
      }
      const current = strips[at.sequence]?.[at.index];
      current?.classList.add("current");
      if (current) lit.push(current);
      const words = [];
      if (at.sequence === layer.queries) words.push(tell("reads", weights.reads(head, at.index), layer.keys, "--reads"));
      if (at.sequence === layer.keys) words.push(tell("is read by", weights.readBy(head, at.index), layer.queries, "--read-by"));
      said.textContent = words.length ? `${nameOf(described.sequences[at.sequence], at.index)} ${words.join("; ")}. (${look.head()})`
        : `${nameOf(described.sequences[at.sequence], at.index)} has no part in ${look.head()}.`;
    }

    function tell(verb, weights, sequence, property) {
      const names = strongest(weights, 4).map((index) => `${nameOf(described.sequences[sequence], index)} ${percent(weights[index])}`);
      for (const index of strongest(weights, 16, 0.02)) {
        const button = strips[sequence]?.[index];
        if (!button) continue;
        button.style.setProperty(property, String(Math.sqrt(weights[index])));
        lit.push(button);
      }
      return `${verb} ${names.join(", ") || "nobody"}`;
    }

    host.append(said);
    look.whenWeights(show);
    state.listen((changed) => changed.has("at") && show());
    show();
  },
};
