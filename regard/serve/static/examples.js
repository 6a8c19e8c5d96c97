/** Inputs to try, as chips; where nothing was written yet, the first one runs by itself. */

import { get } from "./api.js";
import { make } from "./make.js";
import { recall, remember } from "./memory.js";

/**
 * @typedef {{label: string, input?: string, second?: string, texts?: string[]}} Example  the fields of a request, and words
 *   for people; what is no text stands in the field of its modality, such as `image`
 * @typedef {{data: Example[], canvas: [number, number, number] | null}} Examples
 */

/** @type {Map<string, Promise<Examples>>} */
const kept = new Map();

/** The examples of a model, asked for once. @param {string} model */
export function examplesOf(model) {
  if (!kept.has(model)) {
    const asked = get(`/v1/look/examples?${new URLSearchParams({ model })}`);
    kept.set(model, asked);
    asked.catch(() => kept.delete(model));
  }
  return kept.get(model);
}

/**
 * @param {import("./views/index.js").Context} context
 * @param {{name: string, current: () => string | null, use: (example: Example) => void,
 *          choose?: (data: Example[]) => Example[]}} options
 *   `current` is what stands in the view now, "" for nothing, null for what no example may replace; `use` puts an example
 *   there and runs it; `choose` makes the view's examples of the model's
 */
export function createExamples(context, { name, current, use, choose = (data) => data }) {
  const row = make("div", { class: "chips", role: "group", "aria-label": "Examples" });
  const element = make("div", { class: "examples", hidden: true }, make("span", { class: "note", "aria-hidden": "true" }, "Try"), row);
  const valueOf = (example) => example[context.model.field] ?? example.input;
  let turn = 0;

  async function show() {
    const own = ++turn;
    element.hidden = true;
    let found;
    try {
      found = choose((await examplesOf(context.model.id)).data);
    } catch {
      return; // the view is whole without them; what is wrong, the next request will say
    }
    if (own !== turn || !element.isConnected) return; // another model or another view was picked meanwhile
    row.replaceChildren(...found.map((example) => chip(example)));
    element.hidden = found.length === 0;
    const now = current();
    const offered = now === "" || now === recall(`example.${name}`, null, "sessionStorage");
    const same = found.find((example) => valueOf(example) === now);
    if (found.length && recall("examples", true) && now !== null && (offered || same)) pick(same ?? found[0]);
  }

  function chip(example) {
    const value = valueOf(example);
    const image = typeof value === "string" && value.startsWith("data:image/");
    return make("button", { type: "button", class: image ? "chip pictured" : "chip", "aria-pressed": "false", title: example.label,
      onclick: () => pick(example) },
      image ? make("img", { src: value, alt: "" }) : null, make("span", {}, example.label));
  }

  function pick(example) {
    if (example.input !== undefined) remember(`example.${name}`, example.input, "sessionStorage");
    use(example);
    mark();
  }

  /** Shows which example, if any, is the one in the view. */
  function mark() {
    const now = current();
    examplesOf(context.model.id).then(({ data }) => {
      const all = choose(data);
      for (const [at, button] of [...row.children].entries()) {
        button.setAttribute("aria-pressed", String(all[at] !== undefined && valueOf(all[at]) === now));
      }
    }).catch(() => {});
  }

  return { element, show, mark };
}
