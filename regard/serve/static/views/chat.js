/** A conversation. It outlives a reload; "Start over" ends it. */

import { stream } from "../api.js";
import { chatPiece, createMeter } from "../chunks.js";
import { createCopyPanel } from "../copy.js";
import { createExamples } from "../examples.js";
import { make } from "../make.js";
import { recall, remember } from "../memory.js";
import { createSettings, createTextBox, SAMPLING } from "../settings.js";
import { createTask } from "../task.js";
import { createShadeBox, createTokenText } from "../tokens.js";

/** @type {import("../settings.js").Setting[]} */
const SETTINGS = [
  { name: "system", label: "System message", kind: "text", note: "stands before the conversation" },
  ...SAMPLING,
];

/** @type {import("./index.js").View} */
export const view = {
  name: "chat",
  title: "Chat",
  needs: "chat",

  mount(host, context) {
    const text = createTextBox({ name: "chat", label: "Message", rows: 3 });
    const settings = createSettings("chat", SETTINGS);
    const log = make("div", { class: "log", role: "group", "aria-label": "Conversation" });
    const copy = createCopyPanel();
    const task = createTask({ label: "Send", context, work, summary: () => meter?.summary() ?? "", again: false });
    const over = make("button", { type: "button", onclick: startOver }, "Start over");
    const shade = createShadeBox((on) => log.classList.toggle("shaded", on));
    const after = make("div", { class: "stack" }, make("div", { class: "row" }, over, shade), copy.element);
    /** @type {{role: "user" | "assistant", content: string}[]} */
    let messages = recall("messages", [], "sessionStorage");
    const examples = createExamples(context, { name: "chat", current: () => (messages.length ? null : text.area.value), use });
    let meter = null;
    let offered = recall("messages.offered", false, "sessionStorage"); // the conversation is an example, which the first own message ends
    let offering = false;

    function keep() {
      remember("messages", messages, "sessionStorage");
      remember("messages.offered", offered, "sessionStorage");
    }

    function use({ input }) {
      text.set(input);
      offering = true;
      if (messages.length) forget();
      task.go();
    }

    function forget() {
      task.stop();
      messages = [];
      log.replaceChildren();
      copy.show(null);
    }

    function turn(role, body) {
      after.hidden = false;
      const speaker = make("h2", {}, role === "user" ? "You" : "Model");
      const element = make("article", { class: `turn ${role}` }, speaker, body);
      log.append(element);
      return element;
    }

    async function work(signal) {
      meter = null;
      const question = { role: "user", content: text.area.value };
      if (question.content.trim() === "") throw new Error("The message is empty: write one first.");
      if (offered && messages.length) {
        messages = [];
        log.replaceChildren();
      }
      [offered, offering] = [offering, false];
      const asked = turn("user", make("p", {}, question.content));
      messages.push(question);
      text.set("");
      const answer = { role: "assistant", content: "" };
      try {
        await listen(answer, signal);
      } finally {
        if (answer.content === "") { // no answer: the message goes back to where it can be changed and sent again
          messages = messages.filter((message) => message !== question);
          asked.remove();
          if (text.area.value === "") text.set(question.content);
        }
        keep();
      }
    }

    async function listen(answer, signal) {
      const { system, ...sampling } = settings.values();
      const whole = [...(system ? [{ role: "system", content: system }] : []), ...messages];
      const told = { logprobs: true, top_logprobs: 5, stream: true };
      const body = { model: context.model.id, messages: whole, ...sampling, ...told };
      const written = createTokenText(context, "Answer");
      copy.show({ kind: "chat", path: "/v1/chat/completions", body });
      meter = createMeter();
      for await (const event of stream("/v1/chat/completions", body, signal)) {
        const piece = chatPiece(event);
        meter.add(piece);
        if (piece.text !== "" && answer.content === "") {
          messages.push(answer);
          turn("assistant", written.element);
        }
        written.add(piece);
        answer.content += piece.text;
        task.say("Writing…");
      }
    }

    function startOver() {
      forget();
      keep();
      after.hidden = true;
      text.area.focus();
    }

    after.hidden = true;
    for (const { role, content } of messages) turn(role, make("p", {}, content));
    host.append(make("div", { class: "stack" }, log, text.element, examples.element, settings.element, task.element, after));
    examples.show();
    return { ...task, modelChanged: examples.show };
  },
};
