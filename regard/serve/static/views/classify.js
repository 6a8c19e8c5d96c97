/** Labels for a text, or for a pair of texts. */

import { post } from "../api.js";
import { createBars } from "../bars.js";
import { createCopyPanel } from "../copy.js";
import { createExamples } from "../examples.js";
import { make } from "../make.js";
import { createSettings, createTextBox } from "../settings.js";
import { createTask } from "../task.js";

/** @type {import("../settings.js").Setting[]} */
const SETTINGS = [{ name: "second", label: "Second text", kind: "text", note: "for models that read pairs" }];

/** @type {import("./index.js").View} */
export const view = {
  name: "classify",
  title: "Classify",
  needs: "classify",

  mount(host, context) {
    const text = createTextBox({ name: "classify", label: "Text", rows: 4 });
    const settings = createSettings("classify", SETTINGS, "A second text");
    const label = make("p", { class: "sentence" });
    const bars = createBars({ name: "Labels" });
    const result = make("section", { class: "result", hidden: true, "aria-label": "Result" }, label, bars.element);
    const copy = createCopyPanel();
    const task = createTask({ label: "Classify", context, work });

    const examples = createExamples(context, { name: "classify", current: () => text.area.value, use });

    function use({ input, second = "" }) {
      text.set(input);
      settings.set({ second });
      task.go();
    }

    async function work(signal) {
      const body = { model: context.model.id, input: text.area.value, ...settings.values() };
      const [found] = (await post("/v1/classifications", body, signal)).data;
      label.textContent = found.label;
      bars.show(found.labels.map((each) => ({ ...each, chosen: each.label === found.label })));
      result.hidden = false;
      copy.show({ kind: "classify", path: "/v1/classifications", body });
    }

    host.append(make("div", { class: "stack" }, text.element, examples.element, settings.element, task.element, result, copy.element));
    text.area.addEventListener("input", examples.mark);
    examples.show();
    return { ...task, modelChanged: examples.show };
  },
};
