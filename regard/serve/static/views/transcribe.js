/** What is said in a recording: phrases with their times, each of which can be played. */

import { stream } from "../api.js";
import { createDrop } from "../drop.js";
import { make } from "../make.js";
import { canRecord, createRecorder } from "../record.js";
import { createSettings } from "../settings.js";
import { createTask } from "../task.js";

/** @type {import("../settings.js").Setting[]} */
const SETTINGS = [
  { name: "language", label: "Language", kind: "text", note: "en, de, …; empty: heard" },
  { name: "prompt", label: "Text before", kind: "text", note: "such as names as they are spelled" },
];
const PATH = "/v1/audio/transcriptions";

/** @type {import("./index.js").View} */
export const view = {
  name: "transcribe",
  title: "Transcribe",
  needs: "transcribe",

  mount(host, context) {
    const player = make("audio", { controls: true, hidden: true });
    const recorder = canRecord() ? createRecorder(take) : null;
    const zone = createDrop({ name: "audio", label: "Recording", take }, recorder?.element ?? null, player);
    const settings = createSettings("transcribe", SETTINGS);
    const phrases = make("ol", { class: "phrases" });
    const result = make("section", { class: "result", hidden: true, "aria-label": "Result" }, phrases);
    const task = createTask({ label: "Transcribe", context, work, summary: () => counted(phrases.children.length) });
    let recording = null;
    let stopAt = Infinity;

    function take(next) {
      recording = next;
      URL.revokeObjectURL(player.src);
      player.src = URL.createObjectURL(next);
      player.hidden = false;
      task.go();
    }

    async function work(signal) {
      if (!recording) throw new Error("Choose a recording, or drop one here.");
      phrases.replaceChildren();
      result.hidden = false;
      const form = new FormData();
      const fields = { model: context.model.id, stream: "true", ...settings.values() };
      for (const [name, value] of Object.entries(fields)) form.append(name, value);
      form.append("file", recording);
      for await (const event of stream(PATH, form, signal)) {
        if (event.type === "transcript.text.delta") phrases.append(phrase(event));
      }
    }

    function phrase({ delta, start, end }) {
      const play = make("button", { type: "button", class: "time", "aria-label": `Play from ${clock(start)}`, onclick() {
        stopAt = end;
        player.currentTime = start;
        player.play();
      } }, clock(start));
      return make("li", {}, play, " ", make("span", {}, delta.trim()));
    }

    player.addEventListener("timeupdate", () => {
      if (player.currentTime < stopAt) return;
      player.pause();
      stopAt = Infinity;
    });
    zone.file.accept = context.model.accept;
    host.append(make("div", { class: "stack" }, zone.element, settings.element, task.element, result));
    return {
      ...task,
      modelChanged() {
        phrases.replaceChildren();
        result.hidden = true;
      },
      end() {
        recorder?.end();
        URL.revokeObjectURL(player.src);
      },
    };
  },
};

/** A time as 1:02.3. */
function clock(seconds) {
  const tenths = Math.round(10 * seconds);
  return `${Math.floor(tenths / 600)}:${String(Math.floor(tenths / 10) % 60).padStart(2, "0")}.${tenths % 10}`;
}

function counted(number) {
  return number ? `${number} ${number === 1 ? "phrase" : "phrases"}.` : "Nothing is said.";
}
