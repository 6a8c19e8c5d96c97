/** Sentences in another language, with what each piece of them looked at. */

import { post } from "../api.js";
import { createAlignment } from "../alignment.js";
import { createCopyPanel } from "../copy.js";
import { createExamples } from "../examples.js";
import { make } from "../make.js";
import { createSettings, createTextBox } from "../settings.js";
import { createTask } from "../task.js";

/** @type {import("../settings.js").Setting[]} */
const SETTINGS = [
  { name: "beams", label: "Beams", kind: "number", start: 4, min: 1, step: 1, note: "1: greedy alone; empty: the model's own" },
  { name: "n", label: "Translations", kind: "number", start: 1, min: 1, step: 1, note: "of each sentence" },
];

/** @type {import("./index.js").View} */
export const view = {
  name: "translate",
  title: "Translate",
  needs: "translate",

  mount(host, context) {
    const text = createTextBox({ name: "translate", label: "Text, one sentence a line", rows: 4 });
    const settings = createSettings("translate", SETTINGS);
    const results = make("div", { class: "stack" });
    const copy = createCopyPanel();
    const task = createTask({ label: "Translate", context, work });

    const examples = createExamples(context, { name: "translate", current: () => text.area.value, use });

    function use({ input }) {
      text.set(input);
      task.go();
    }

    async function work(signal) {
      const sentences = text.area.value.split("\n").filter((line) => line.trim() !== "");
      const input = sentences.length > 1 ? sentences : sentences[0] ?? "";
      const body = { model: context.model.id, input, ...settings.values(), alignment: true };
      const { data } = await translate(body, signal);
      const alone = body.beams === 1 && (body.n ?? 1) === 1;
      const greedy = alone ? [] : (await post("/v1/translations", { model: body.model, input, beams: 1 }, signal)).data;
      const name = alone ? "Greedy" : `Beam search${body.beams ? ` with ${body.beams} beam${body.beams > 1 ? "s" : ""}` : ""}`;
      results.replaceChildren(...data.map(({ translations }, index) =>
        make("section", { class: "result", "aria-label": `Translation of sentence ${index + 1}` },
          sentences.length > 1 ? make("p", { class: "note" }, sentences[index]) : null,
          make("h3", {}, name), ...translations.map(show), ...beside(greedy[index]?.translations[0], translations[0]))));
      copy.show({ kind: "translate", path: "/v1/translations", body });
    }

    /** Not every model can tell its alignment; it translates without. */
    async function translate(body, signal) {
      try {
        return await post("/v1/translations", body, signal);
      } catch (error) {
        if (error.param !== "alignment") throw error;
        body.alignment = false;
        return post("/v1/translations", body, signal);
      }
    }

    /** What is found without a search, by the most probable token of each step, beside the best that was found with one. */
    function beside(greedy, best) {
      if (!greedy) return [];
      const same = greedy.text === best.text;
      return [make("div", { class: "greedy" }, make("h3", {}, "Greedy"), same ? null : make("p", { class: "sentence" }, greedy.text),
        make("p", { class: "note" }, same ? "The same translation: the most probable token at each step leads there, too."
          : "The most probable token at each step."))];
    }

    /** The best one shows its alignment; the others fold it away. */
    function show({ text: translation, score, alignment }, rank) {
      return make("div", { class: "translation" }, make("p", { class: "sentence" }, translation),
        make("p", { class: "note" }, `Score ${score.toPrecision(2).replaceAll("-", "−")}`),
        alignment
          ? make("details", { open: rank === 0 }, make("summary", {}, "Alignment"), createAlignment(alignment))
          : null);
    }

    host.append(make("div", { class: "stack" }, text.element, examples.element, settings.element, task.element, results, copy.element));
    text.area.addEventListener("input", examples.mark);
    examples.show();
    return { ...task, modelChanged: examples.show };
  },
};
