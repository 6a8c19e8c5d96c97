/** The most probable next tokens for a text; picking one adds it and asks again: writing with the model. */

import { post } from "./api.js";
import { createBars } from "./bars.js";
import { completionPiece } from "./chunks.js";
import { createCopyPanel } from "./copy.js";
import { make, visible } from "./make.js";
import { recall, remember } from "./memory.js";
import { problemLine } from "./task.js";

const PAUSE = 250; // milliseconds without a key before the text is asked about
const PART = /^(bytes:.*)?$|\ufffd/; // a part of a character cannot be written alone

/** @param {object} context  @param {ReturnType<typeof import("./settings.js").createTextBox>} text */
export function createNextTokens(context, text) {
  const bars = createBars({ name: "Next tokens", onpick: pick });
  const note = make("p", { class: "note" });
  const problem = make("div");
  const copy = createCopyPanel();
  const element = make("details", { class: "next", open: recall("next", false), ontoggle: toggle },
    make("summary", {}, "Next tokens"), note, problem, bars.element, copy.element);
  let tokens = [];
  let timer = 0;
  /** @type {AbortController | null} */
  let running = null;

  function toggle() {
    remember("next", element.open);
    if (element.open) ask();
    else stop();
  }

  function stop() {
    clearTimeout(timer);
    running?.abort();
    running = null;
    element.removeAttribute("aria-busy");
  }

  async function ask() {
    stop();
    if (!element.open) return;
    if (text.area.value === "") return show([], "Write something: this shows what the model would write next.");
    const own = new AbortController();
    running = own;
    element.setAttribute("aria-busy", "true");
    if (!context.model.loaded) note.textContent = "Loading the model…";
    const call = { kind: "next", path: "/v1/completions",
      body: { model: context.model.id, prompt: text.area.value, max_tokens: 1, temperature: 0, logprobs: 10,
        truncate: true } };
    try {
      const [token] = completionPiece(await post(call.path, call.body, own.signal)).tokens;
      if (running !== own) return;
      show(token?.others ?? [], token ? "Pick one to add it to the text." : "The model would end here.");
      copy.show(call);
      if (!context.model.loaded) context.refresh();
    } catch (error) {
      if (running !== own) return;
      show([], "");
      problem.replaceChildren(problemLine(error, ask));
    }
    element.removeAttribute("aria-busy");
  }

  function show(found, words) {
    tokens = found;
    note.textContent = words;
    problem.replaceChildren();
    bars.show(found.map(({ label, probability }) => (
      { label: visible(label), probability, disabled: PART.test(label) })));
  }

  function pick(index) {
    text.set(text.area.value + tokens[index].label);
    text.area.scrollTop = text.area.scrollHeight;
    context.announce(`Added ${visible(tokens[index].label)}`);
    ask();
  }

  text.area.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  });
  if (element.open) ask();
  return { element, ask, stop };
}
