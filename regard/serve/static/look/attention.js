/** Every head small, and one of them large: as a matrix, and as lines between tokens or as light on the image. */

import { make } from "../make.js";
import { createHeads } from "./heads.js";
import { createLines } from "./lines.js";
import { createMatrix } from "./matrix.js";
import { createImage } from "./image.js";
import { createSwitches } from "./switches.js";
import { whenThemed } from "./palette.js";
import { TITLES } from "./sequences.js";
import { createWords } from "./words.js";

/** @type {import("./inside.js").Panel} */
export const panel = {
  name: "attention",
  title: "Attention",
  fits: ({ layers }) => layers.length > 0,

  mount(host, look) {
    const { described, state } = look;
    const kinds = [...new Set(described.layers.map(({ tab }) => tab))];
    const tabs = kinds.map((kind) => make("button", { type: "button", role: "tab", id: `tab-${kind}`,
      "data-key": `tab ${kind}`, "aria-controls": "attention-of-kind", onclick: () => choose(kind) }, TITLES[kind]));
    const heads = createHeads(look);
    const title = make("h3", {});
    const switches = createSwitches(look);
    const [matrix, lines] = [createMatrix(look), createLines(look)];
    const image = described.input.image ? createImage(look) : null;
    const words = image ? createWords(look, image.image) : null;
    const large = make("section", { class: "large", "aria-label": "The chosen head" },
      make("div", { class: "row" }, title, switches.element),
      make("div", { class: "views" }, ...(image ? [image.element] : []), lines.element, matrix.element),
      words?.element ?? null);
    const note = make("p", { class: "note" }, `The stronger the colour, the larger the weight (by its square root). Weights come in steps of 1/255 ${
      ""}of each row's strongest; “Step by step” has them ${look.source.live ? "exactly" : "from q and k that this file rounds to 16 bits"}.`);

    function choose(kind) {
      const first = described.layers.findIndex(({ tab }) => tab === kind);
      state.set({ tab: kind, layer: first, head: 0 });
    }

    function walk(event) {
      const at = tabs.indexOf(document.activeElement);
      const next = tabs[at + ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? tabs.length)];
      if (at < 0 || !next) return;
      event.preventDefault();
      next.click();
      next.focus();
    }

    function mark() {
      for (const [place, tab] of tabs.entries()) {
        const chosen = kinds[place] === state.values.tab;
        tab.setAttribute("aria-selected", String(chosen));
        tab.tabIndex = chosen ? 0 : -1;
      }
      const head = look.head();
      const { windows } = described.layers[state.values.layer];
      const cut = windows ? ` · windows of ${windows.size} × ${windows.size}${windows.shift ? `, shifted by ${windows.shift}` : ""}` : "";
      title.textContent = head[0].toUpperCase() + head.slice(1) + cut;
    }

    function show() {
      mark();
      const { layer, weights } = look;
      if (!weights) return;
      const seen = Boolean(described.sequences[layer.keys].grid);
      lines.element.hidden = !(described.sequences[layer.keys].tokens && described.sequences[layer.queries].tokens);
      if (image) image.element.hidden = !seen;
      if (seen) image.show(layer, weights, state.values.head);
      if (!lines.element.hidden) lines.show(layer, weights, state.values.head);
      matrix.show(layer, weights, state.values.head);
      words?.show(layer, weights, state.values.head);
    }

    const bar = make("div", { class: "row" },
      kinds.length > 1 ? make("div", { class: "tabs", role: "tablist", "aria-label": "Kind of attention", onkeydown: walk }, ...tabs)
        : null, switches.effects);
    host.append(bar, make("div", { class: "attention", id: "attention-of-kind",
      ...(kinds.length > 1 ? { role: "tabpanel", "aria-label": "Heads of this kind" } : {}) }, make("div", { class: "heads-box" },
      make("p", { class: "note" }, "Layers down, heads across. Click one to enlarge it."), heads.element), large), note);
    look.whenWeights(show);
    state.listen((changed) => {
      if (changed.has("tab") || changed.has("layer") || changed.has("head")) mark();
      if (!changed.has("at") || !look.weights) return;
      matrix.point();
      if (!lines.element.hidden) lines.point();
      image?.draw();
      words?.point();
    });
    const end = whenThemed(() => {
      heads.themed();
      show();
    });
    mark();
    return { end };
  },
};
