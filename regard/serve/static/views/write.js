/** A text, and what a model writes after it. */

import { stream } from "../api.js";
import { completionPiece, createMeter } from "../chunks.js";
import { createCopyPanel } from "../copy.js";
import { createExamples } from "../examples.js";
import { make } from "../make.js";
import { createNextTokens } from "../next.js";
import { createSettings, createTextBox, SAMPLING } from "../settings.js";
import { createTask } from "../task.js";
import { createShadeBox, createTokenText } from "../tokens.js";

/** @type {import("./index.js").View} */
export const view = {
  name: "write",
  title: "Write",
  needs: "generate",

  mount(host, context) {
    const text = createTextBox({ name: "write", label: "Text", rows: 6, placeholder: "Once upon a time" });
    const settings = createSettings("write", SAMPLING);
    const written = createTokenText(context, "What the model wrote");
    const copy = createCopyPanel();
    const task = createTask({ label: "Write on", context, work, summary: () => meter?.summary() ?? "" });
    const next = createNextTokens(context, text);
    const keep = make("button", { type: "button", onclick: addToText }, "Add to the text");
    const result = make("section", { class: "result", hidden: true, "aria-label": "Result" }, written.element,
      make("p", { class: "note" }, "Point at a token, or walk with ← →, to see what else was probable."),
      make("div", { class: "row" }, keep, createShadeBox(written.shade)), copy.element);
    const examples = createExamples(context, { name: "write", current: () => text.area.value, use });
    let meter = null;

    function use({ input }) {
      text.set(input);
      task.go();
    }

    async function work(signal) {
      const told = { logprobs: 5, truncate: true, stream: true };
      const body = { model: context.model.id, prompt: text.area.value, ...settings.values(), ...told };
      let begun = false; // the last result stays until there is another
      meter = createMeter();
      for await (const event of stream("/v1/completions", body, signal)) {
        if (!begun) {
          written.clear();
          copy.show({ kind: "written", path: "/v1/completions", body });
          result.hidden = false;
          task.say("Writing…");
          begun = true;
        }
        const piece = completionPiece(event);
        meter.add(piece);
        written.add(piece);
      }
    }

    function addToText() {
      text.set(text.area.value + written.text());
      written.clear();
      result.hidden = true;
      text.area.focus();
    }

    host.append(make("div", { class: "columns" },
      make("div", { class: "stack" }, text.element, examples.element, settings.element, task.element, result), next.element));
    text.area.addEventListener("input", examples.mark);
    examples.show();
    return {
      go: task.go,
      stop() {
        task.stop();
        next.stop();
      },
      modelChanged() {
        next.ask();
        examples.show();
      },
    };
  },
};
