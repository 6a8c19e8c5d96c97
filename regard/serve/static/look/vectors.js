/** How text became tokens, merge by merge, and the vector that each token enters the first block with. */

import { make } from "../make.js";
import { strip } from "./numbers.js";
import { lengthOf, nameOf } from "./sequences.js";
import { unpack } from "./unpack.js";

const MOST = 256; // tokens whose vectors are shown

/** @type {import("./inside.js").Panel} */
export const merges = {
  name: "merges",
  title: "How the tokenizer got there",
  folded: true,
  fits: ({ sequences }) => sequences.some((one) => one.merges),

  mount(host, { described }) {
    for (const { merges: steps, title } of described.sequences.filter((one) => one.merges)) {
      const said = make("p", { class: "note", role: "status" });
      const symbols = make("p", { class: "symbols" });
      const slider = make("input", { type: "range", min: 0, max: steps.length - 1, value: String(steps.length - 1), step: 1,
        "aria-label": `Merges of the ${title.toLowerCase()}`, oninput: show });

      function show() {
        const at = Number(slider.value);
        const { merge, rank, symbols: now } = steps[at];
        said.textContent = at === 0 ? `${now.length} symbols, before the first of ${steps.length - 1} merges`
          : `Merge ${at} of ${steps.length - 1}: ${merge}${rank === null ? "" : `, learned as number ${rank + 1}`}; ${now.length} symbols`;
        symbols.replaceChildren(...now.map((symbol) => make("span", { class: merge.endsWith(`→ ${symbol}`) ? "new" : "" }, symbol)));
      }

      host.append(slider, said, symbols);
      show();
    }
  },
};

/** @type {import("./inside.js").Panel} */
export const vectors = {
  name: "vectors",
  title: "What enters the first block",
  folded: true,
  fits: ({ sequences }) => sequences.some((one) => one.vectors),

  mount(host, look) {
    const { described, state } = look;
    for (const [number, sequence] of described.sequences.entries()) {
      if (!sequence.vectors) continue;
      const { width, order, parts } = sequence.vectors;
      const read = parts.map((part) => ({ ...part, norms: unpack(part.norms).values, values: unpack(part.values) }));
      const rows = make("tbody");
      const top = Math.max(...read.map((part) => part.norms.reduce((most, one) => Math.max(most, one), 0)));
      for (let index = 0; index < Math.min(MOST, lengthOf(sequence)); index += 1) {
        rows.append(make("tr", { onpointerenter: () => state.point(number, index), onpointerleave: state.leave },
          make("th", { scope: "row" }, nameOf(sequence, index)), ...read.flatMap((part) => {
            const { shape, values } = part.values;
            const length = make("span", { class: "share" }, part.norms[index].toFixed(2));
            length.style.setProperty("--weight", String(part.norms[index] / top));
            const numbers = Float32Array.from(values.subarray(index * shape[1], (index + 1) * shape[1]), (one) => (one / 127) * part.top);
            return [make("td", {}, length), make("td", {}, strip(numbers))];
          })));
      }
      const table = make("table", { class: "numbers" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, sequence.grid ? "patch" : "token"),
        ...read.map((part) => make("th", { scope: "col", colSpan: 2, class: "strips" }, part.name)))), rows);
      host.append(make("p", { class: "note" }, `${sequence.title}: ${width} numbers for each ${sequence.grid ? "patch" : "token"}; its length, and the first ${
        read[0].values.shape[1]} as colours. ${order}`), make("div", { class: "scroll tall" }, table));
    }
  },
};
