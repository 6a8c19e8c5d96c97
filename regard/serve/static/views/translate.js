/** Sentences in another language, with what each piece of them looked at. */

import { post } from "../api.js";
import { createAlignment } from "../alignment.js";
import { createCopyPanel } from "../copy.js";
import { make } from "../make.js";
import { createSettings, createTextBox } from "../settings.js";
import { createTask } from "../task.js";

/** @type {import("../settings.js").Setting[]} */
const SETTINGS = [
  { name: "beams", label: "Beams", kind: "number", min: 1, step: 1, note: "empty: as the model was made for" },
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

    async function work(signal) {
      const sentences = text.area.value.split("\n").filter((line) => line.trim() !== "");
      const input = sentences.length > 1 ? sentences : sentences[0] ?? "";
      const body = { model: context.model.id, input, ...settings.values(), alignment: true };
      const { data } = await translate(body, signal);
      results.replaceChildren(...data.map(({ translations }, index) =>
        make("section", { class: "result", "aria-label": `Translation of sentence ${index + 1}` },
          sentences.length > 1 ? make("p", { class: "note" }, sentences[index]) : null, ...translations.map(show))));
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

    /** The best one shows its alignment; the others fold it away. */
    function show({ text: translation, score, alignment }, rank) {
      return make("div", { class: "translation" }, make("p", { class: "sentence" }, translation),
        make("p", { class: "note" }, `Score ${score.toPrecision(2).replaceAll("-", "−")}`),
        alignment
          ? make("details", { open: rank === 0 }, make("summary", {}, "Alignment"), createAlignment(alignment))
          : null);
    }

    host.append(make("div", { class: "stack" }, text.element, settings.element, task.element, results, copy.element));
    return task;
  },
};
