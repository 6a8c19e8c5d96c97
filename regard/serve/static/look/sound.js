/** The recording that was read: the stretch that a token came from can be played. */

import { make } from "../make.js";
import { nameOf } from "./sequences.js";

const AROUND = 0.1; // seconds played before and behind it: a token alone is too short to be heard

/** @type {import("./inside.js").Panel} */
export const panel = {
  name: "sound",
  title: "Recording",
  fits: ({ input }) => Boolean(input.sound),

  mount(host, look) {
    const { described, state } = look;
    const address = URL.createObjectURL(blobOf(described.input.sound));
    const player = make("audio", { controls: true, src: address, "data-key": "sound" });
    const button = make("button", { type: "button", "data-key": "play", onclick: play }, "Play the token");
    const said = make("p", { class: "reading", "data-said": "sound" });
    let stretch = null;
    let stopAt = Infinity;

    function play() {
      if (!stretch) return;
      stopAt = stretch[1] + AROUND;
      player.currentTime = Math.max(0, stretch[0] - AROUND);
      player.play();
    }

    /** The token's own stretch; of one that is written, the stretch that the head reads most. */
    function find() {
      const { at, head } = state.values;
      const { layer, weights } = look;
      if (!at) return null;
      const own = described.sequences[at.sequence];
      if (own.seconds) return span(own, at.index);
      const keys = layer && at.sequence === layer.queries ? described.sequences[layer.keys] : null;
      if (!keys?.seconds) return null;
      const reads = weights.reads(head, at.index);
      return span(keys, reads.indexOf(Math.max(...reads)));
    }

    function show() {
      stretch = find();
      const { at } = state.values;
      button.disabled = !stretch;
      said.textContent = stretch
        ? `${nameOf(described.sequences[at.sequence], at.index)} is of second ${stretch[0].toFixed(2)} to ${stretch[1].toFixed(2)}.`
        : "Choose a token to hear the stretch that it came from.";
    }

    player.addEventListener("timeupdate", () => {
      if (player.currentTime < stopAt) return;
      player.pause();
      stopAt = Infinity;
    });
    host.append(player, button, said);
    look.whenWeights(show);
    state.listen((changed) => changed.has("at") && show());
    show();
    return { end: () => URL.revokeObjectURL(address) };
  },
};

/** The seconds of a token; of a patch, those of its column. */
function span(sequence, index) {
  const place = index - (sequence.grid ? sequence.front.length : 0);
  if (place < 0) return null;
  const column = sequence.grid ? place % sequence.grid[1] : place;
  return [column * sequence.seconds, (column + 1) * sequence.seconds];
}

/** A data: URI as a blob: the page may play no other address. */
function blobOf(uri) {
  const [head, data] = uri.split(",");
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return new Blob([bytes], { type: head.slice(5).split(";")[0] });
}
