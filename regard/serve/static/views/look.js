/** Inside a model at work on one input: tokens, attention, numbers, probabilities. */

import { post } from "../api.js";
import { createInside } from "../look/inside.js";
import { createSource } from "../look/source.js";
import { make } from "../make.js";
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
    const file = make("input", { type: "file", onchange: () => task.go() });
    const called = make("span", {});
    const chosen = make("label", { class: "text" }, called, file);
    const texts = createTextBox({ name: "look.texts", label: "Texts to compare it with, one a line", rows: 2 });
    const inputs = make("div", { class: "stack inputs" });
    const problem = make("div");
    const shown = make("div");
    const task = createTask({ label: "Look", context, work, summary: () => "" });
    let opening = location.search === "?look"; // the server was started with something to look at
    let inside = null;
    let described = null;
    let input = {}; // what was sent to be looked at: the server keeps only the latest passes
    let turn = 0; // of all answers that are on their way only the last one counts

    const readsFiles = () => context.model.widget !== "text";

    function arrange() {
      file.accept = context.model.accept;
      called.textContent = context.model.field.replace(/^./, (letter) => letter.toUpperCase());
      inputs.replaceChildren(...(readsFiles() ? [chosen, texts.element] : [text.element, second.element]));
      texts.element.hidden = !described?.input.texts;
      second.element.hidden = !context.model.does.includes("embed");
    }

    async function work(signal) {
      const first = opening && !file.files.length && !text.area.value;
      opening = false;
      await show({ model: context.model.id, ...(first ? {} : await given()) }, signal, null);
    }

    async function given() {
      if (!readsFiles()) return { input: text.area.value, ...(second.element.hidden || !second.area.value ? {} : { second: second.area.value }) };
      const lines = texts.area.value.split("\n").filter((line) => line.trim() !== "");
      const compared = lines.length && described?.input.texts ? { texts: lines } : {};
      if (!file.files.length) return { ...(described ? { look: described.look } : {}), ...compared };
      return { [context.model.field]: await uriOf(file.files[0]), ...compared };
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

    arrange();
    host.append(make("div", { class: "stack looking" }, inputs, task.element, problem, shown));
    if (opening) task.go();
    return {
      go: task.go,
      stop() {
        task.stop();
      },
      modelChanged() {
        turn += 1;
        inside?.end();
        [inside, described, input] = [null, null, {}];
        shown.replaceChildren();
        arrange();
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
