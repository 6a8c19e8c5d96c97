/** How alike sentences are to a model: the cosine of the angle between their embeddings. */

import { post } from "../api.js";
import { createCopyPanel } from "../copy.js";
import { createExamples } from "../examples.js";
import { make } from "../make.js";
import { createTextBox } from "../settings.js";
import { createTask } from "../task.js";

/** @type {import("./index.js").View} */
export const view = {
  name: "compare",
  title: "Compare",
  needs: "embed",

  mount(host, context) {
    const text = createTextBox({ name: "compare", label: "Sentences, one a line", rows: 5 });
    const table = make("table", { class: "likeness" });
    const name = "Similarity of the sentences";
    const result = make("section", { class: "result scroll", hidden: true, tabIndex: 0, "aria-label": name }, table);
    const copy = createCopyPanel();
    const task = createTask({ label: "Compare", context, work });

    const examples = createExamples(context, { name: "compare", current: () => text.area.value, use, choose });

    /** One example: all sentences at once. */
    function choose(data) {
      const sentences = data.flatMap(({ input, second }) => [input, second]).filter((one) => one && !one.includes("\n"));
      return sentences.length < 2 ? [] : [{ label: `${sentences.length} sentences`, input: sentences.join("\n") }];
    }

    function use({ input }) {
      text.set(input);
      task.go();
    }

    async function work(signal) {
      const input = text.area.value.split("\n").filter((line) => line.trim() !== "");
      if (input.length < 2) throw new Error("There is nothing to compare: write at least two sentences, one a line.");
      const body = { model: context.model.id, input };
      const { data } = await post("/v1/embeddings", body, signal);
      show(input, data.map(({ embedding }) => embedding));
      result.hidden = false;
      copy.show({ kind: "compare", path: "/v1/embeddings", body });
    }

    function show(sentences, vectors) {
      const heads = sentences.map((title, index) => make("th", { scope: "col", title }, String(index + 1)));
      const rows = vectors.map((a, row) => {
        const rank = make("span", { class: "rank" }, String(row + 1));
        const head = make("th", { scope: "row" }, rank, sentences[row]);
        return make("tr", {}, head, ...vectors.map((b) => cell(cosine(a, b))));
      });
      table.replaceChildren(make("thead", {}, make("tr", {}, make("td"), ...heads)), make("tbody", {}, ...rows));
    }

    function cell(likeness) {
      const element = make("td", { class: likeness < 0 ? "unlike" : "" }, likeness.toFixed(2).replace("-", "−"));
      element.style.setProperty("--weight", String(Math.abs(likeness)));
      return element;
    }

    host.append(make("div", { class: "stack" }, text.element, examples.element, task.element, result, copy.element));
    text.area.addEventListener("input", examples.mark);
    examples.show();
    return { ...task, modelChanged: examples.show };
  },
};

function cosine(a, b) {
  const dot = (x, y) => x.reduce((sum, value, index) => sum + value * y[index], 0);
  return dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1);
}
