/** Labels of a clip, and its frames with the attention that each part of them gets. */

import { post } from "../api.js";
import { createBars } from "../bars.js";
import { createCopyPanel } from "../copy.js";
import { createDrop, uriOf } from "../drop.js";
import { createExamples } from "../examples.js";
import { make, percent } from "../make.js";
import { createTask } from "../task.js";

const PATH = "/v1/videos";

/** @type {import("./index.js").View} */
export const view = {
  name: "videos",
  title: "Clips",
  needs: "videos",

  mount(host, context) {
    const player = make("video", { controls: true, loop: true, muted: true, hidden: true });
    const moving = make("img", { class: "clip", alt: "The clip", hidden: true });
    const zone = createDrop({ name: "video", label: "Clip: .mp4, .webm, .mov, .mkv, .avi, .gif", take }, player, moving);
    const label = make("p", { class: "sentence" });
    const bars = createBars({ name: "Labels" });
    const frames = make("ol", { class: "frames", "aria-label": "Frames" });
    const note = make("p", { class: "note" });
    const result = make("section", { class: "result", hidden: true, "aria-label": "Result" }, label, bars.element, frames, note);
    const copy = createCopyPanel();
    const task = createTask({ label: "Classify", context, work });
    const examples = createExamples(context, { name: "videos", current: () => clip, use });
    let clip = "";

    function use(example) {
      clip = example.video;
      show();
      task.go();
    }

    function show() {
      const image = clip.startsWith("data:image/");
      moving.hidden = !image;
      player.hidden = image;
      (image ? moving : player).src = clip;
    }

    async function take(file) {
      use({ video: await uriOf(file) });
    }

    async function work(signal) {
      if (!clip) throw new Error("Choose a clip, or drop one here.");
      const body = { model: context.model.id, input: clip };
      const [found] = (await post(PATH, body, signal)).data;
      label.textContent = found.labels ? found.labels[0].label : `A vector of ${found.embedding.length} numbers.`;
      bars.show((found.labels ?? []).slice(0, 12).map((each, index) => ({ ...each, chosen: index === 0 })));
      result.hidden = false;
      frames.replaceChildren();
      note.textContent = "";
      copy.show({ kind: "classify", path: PATH, body });
      const seen = await post("/v1/look", { model: context.model.id, video: clip }, signal).catch(() => null); // too large to be shown
      if (!seen?.answer.frames) return;
      frames.replaceChildren(...seen.answer.frames.map((frame) => drawn(frame, seen.answer)));
      note.textContent = "Brighter: parts that count more for the answer, by attention through all layers.";
    }

    host.append(make("div", { class: "stack" }, zone.element, examples.element, task.element, result, copy.element));
    zone.file.accept = context.model.accept;
    examples.show();
    return { ...task, modelChanged: examples.show };
  },
};

/** A frame under its veil: the less a cell counts, the darker it is. */
function drawn({ image, step }, { shares, top, cover }) {
  const rows = shares[step];
  const canvas = make("canvas", { width: rows[0].length, height: rows.length, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  rows.forEach((row, y) => row.forEach((share, x) => {
    pen.fillStyle = `rgba(0, 0, 0, ${0.8 * (1 - Math.min(1, share / top))})`;
    pen.fillRect(x, y, 1, 1);
  }));
  canvas.style.width = `${100 * cover[1]}%`;
  canvas.style.height = `${100 * cover[0]}%`;
  const total = rows.flat().reduce((sum, share) => sum + share, 0);
  return make("li", {}, make("span", { class: "frame" }, make("img", { src: image, alt: "" }), canvas), make("small", {}, `${step}: ${percent(total)}`));
}
