/** Inside a model at work on one input: tokens, attention, numbers, probabilities. */

import { post } from "../api.js";
import { createExamples, examplesOf } from "../examples.js";
import { createInside } from "../look/inside.js";
import { createSource } from "../look/source.js";
import { make } from "../make.js";
import { createPad, groundOf } from "../pad.js";
import { createTextBox } from "../settings.js";
import { createTask, problemLine } from "../task.js";

/** @type {import("./index.js").View} */
export const view = {
  name: "look",
  title: "Look inside",
  needs: "look",

  mount(host, context) {
    const text = createTextBox({ name: "look", label: "Text", rows: 2 });
    const second = createTextBox({ name: "look.second", label: "Second text, for models of pairs", rows: 1 });
    const file = make("input", { type: "file", onchange: () => read(file.files[0]) });
    const called = make("span", {});
    const chosen = make("div", { class: "stack drop" }, make("label", { class: "text" }, called, file),
      make("p", { class: "note" }, "Choose a file, drop one here, or paste one."));
    const drawing = make("div", {});
    const files = make("div", { class: "stack" });
    const texts = createTextBox({ name: "look.texts", label: "Texts to compare it with, one a line", rows: 2 });
    const inputs = make("div", { class: "stack inputs", ondragover: over, ondragleave: out, ondrop: drop });
    const problem = make("div");
    const shown = make("div");
    const task = createTask({ label: "Look", context, work, summary: () => "" });
    let opening = location.search === "?look"; // the server was started with something to look at
    const examples = createExamples(context, { name: "look", current: () => (given ? null : readsFiles() ? item ?? "" : text.area.value), use });
    let item = null; // what is looked at, if it is no text: a file as a data: URI
    let given = opening; // no example takes the place of what the server was started with
    let inside = null;
    let described = null;
    let offered = []; // texts that an example compares its image with
    let input = {}; // what was sent to be looked at: the server keeps only the latest passes
    let turn = 0; // of all answers that are on their way only the last one counts

    const readsFiles = () => context.model.widget !== "text";

    function arrange() {
      file.accept = context.model.accept;
      called.textContent = context.model.field.replace(/^./, (letter) => letter.toUpperCase());
      if (readsFiles()) files.replaceChildren(chosen, examples.element, texts.element);
      inputs.replaceChildren(...(readsFiles() ? [files, drawing] : [text.element, second.element]));
      if (!readsFiles()) inputs.after(examples.element);
      texts.element.hidden = !described?.input.texts;
      second.element.hidden = !context.model.does.includes("embed");
    }

    /** Models of small images have a canvas, as dark or light as their examples. */
    async function arrangeCanvas() {
      drawing.replaceChildren();
      const { model } = context;
      const { canvas, data } = await examplesOf(model.id);
      if (!canvas || context.model !== model) return;
      const first = data[0]?.[model.field];
      const ground = first ? await groundOf(first) : [0, 0, 0];
      if (context.model.id === model.id) drawing.replaceChildren(createPad({ size: canvas, ground, ondraw: take }).element);
    }

    function take(uri) {
      given = false;
      item = uri;
      examples.mark();
      task.go();
    }

    async function read(one) {
      if (!one) return;
      try {
        take(await uriOf(one));
      } catch (error) {
        problem.replaceChildren(problemLine(error, () => read(one)));
      }
    }

    function over(event) {
      if (!readsFiles() || !event.dataTransfer.types.includes("Files")) return;
      event.preventDefault(); // else the browser would open the file
      chosen.classList.add("over");
    }

    function out(event) {
      if (!inputs.contains(event.relatedTarget)) chosen.classList.remove("over");
    }

    function drop(event) {
      chosen.classList.remove("over");
      if (!readsFiles() || !event.dataTransfer.files.length) return;
      event.preventDefault();
      read(event.dataTransfer.files[0]);
    }

    function paste(event) {
      if (readsFiles() && event.clipboardData.files.length) read(event.clipboardData.files[0]);
    }

    function use({ label, input: words, second: other = "", texts: lines = [], ...files }) {
      given = false;
      if (readsFiles()) {
        if (lines.length) texts.set(lines.join("\n"));
        offered = lines;
        file.value = "";
        item = files[context.model.field];
      } else {
        text.set(words);
        second.set(other);
      }
      task.go();
    }

    async function work(signal) {
      const first = opening && !item && !text.area.value;
      opening = false;
      await show({ model: context.model.id, ...(first ? {} : await written()) }, signal, null);
    }

    async function written() {
      if (!readsFiles()) return { input: text.area.value, ...(second.element.hidden || !second.area.value ? {} : { second: second.area.value }) };
      const lines = texts.area.value.split("\n").filter((line) => line.trim() !== "");
      const compared = lines.length && (described?.input.texts || offered.length) ? { texts: lines } : {};
      if (!item) return { ...(described ? { look: described.look } : {}), ...compared };
      return { [context.model.field]: item, ...compared };
    }

    /** What a look was asked for, besides its input. */
    const asked = ({ off, own, input: { target, kept } }) => ({ off, target: own ? null : target, kept: kept ?? null });

    /** One more pass with the same input: other heads, other tokens. */
    async function again(changes) {
      const body = { model: context.model.id, look: described.look, ...asked(described) };
      const focused = document.activeElement?.dataset.key;
      const { at, ...others } = changes;
      const kept = { ...inside.values, ...(at === null ? { pin: null } : {}) };
      try {
        await show({ ...body, ...others }, undefined, kept);
      } catch (error) {
        problem.replaceChildren(problemLine(error, () => again(changes)));
      }
      const next = focused && shown.querySelector(`[data-key="${CSS.escape(focused)}"]`);
      if (next) next.focus({ preventScroll: true });
    }

    /** The first way, or where the look is gone the second. */
    const unlessGone = (first, second) => first().catch((error) => {
      if (error.code !== "look_gone") throw error;
      return second();
    });

    async function show(body, signal, before) {
      const own = ++turn;
      const { model, look, off, target, kept, ...words } = body;
      const sent = look ? { ...input, ...words } : words;
      const found = await unlessGone(() => post("/v1/look", body, signal),
        () => post("/v1/look", { model, off, target, kept, ...sent }, signal));
      if (own !== turn) return; // somebody asked for something else meanwhile
      inside?.end();
      problem.replaceChildren();
      [described, input] = [found, sent];
      inside = createInside({ described, source: createSource(described, asking(model, found, sent), true), announce: context.announce,
        fail: (error) => problem.replaceChildren(problemLine(error, task.go)), again, before });
      shown.replaceChildren(inside.element);
      arrange();
      if (described.input.text && !text.area.value) text.set(described.input.text);
      if (described.input.second && !second.area.value) second.set(described.input.second);
      if (described.input.texts?.length && !texts.area.value) texts.set(described.input.texts.join("\n"));
    }

    /** Asks the server about a look; one that it has forgotten is looked at again, once for all who ask. */
    function asking(model, found, sent) {
      let renewed = null;
      const renew = () => (renewed ??= post("/v1/look", { model, ...sent, ...asked(found) }).then(({ look }) => {
        found.look = look;
      }).finally(() => {
        renewed = null;
      }));
      return (path, more) => {
        const { look } = found;
        const ask = () => post(`/v1/look/${path}`, { model, look: found.look, ...more });
        return unlessGone(ask, async () => {
          if (found.look === look) await renew(); // else somebody did
          return ask();
        });
      };
    }

    host.append(make("div", { class: "stack looking" }, inputs, task.element, problem, shown));
    arrange();
    document.addEventListener("paste", paste);
    text.area.addEventListener("input", examples.mark);
    if (opening) task.go();
    begin();

    /** The examples of the model that is picked, and its canvas. */
    function begin() {
      examples.show();
      drawing.replaceChildren();
      if (readsFiles()) arrangeCanvas().catch(() => {}); // it is left out
    }

    return {
      go: task.go,
      stop: task.stop,
      end: () => document.removeEventListener("paste", paste),
      modelChanged() {
        turn += 1;
        inside?.end();
        [inside, described, input, item, offered] = [null, null, {}, null, []];
        given = false;
        file.value = "";
        shown.replaceChildren();
        arrange();
        begin();
      },
    };
  },
};

function uriOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}
