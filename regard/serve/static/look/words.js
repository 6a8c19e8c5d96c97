/** Where an image was attended to for each word of its caption, or by each query that found something: a strip. */

import { make } from "../make.js";
import { drawLit } from "./image.js";

const WIDTH = 96;

/** @param {import("./inside.js").Look} look  @param {HTMLImageElement} image */
export function createWords(look, image) {
  const { described, state } = look;
  const element = make("div", { class: "words", hidden: true });
  let buttons = [];

  /** A token's own word is written by the token before it: that one was reading when it looked. */
  function chosen(layer) {
    const sequence = described.sequences[layer.queries];
    const { answer } = described;
    const front = sequence.front ?? 0;
    if (answer.kind === "boxes") {
      const found = answer.scores.flatMap((score, query) => (score >= 0.5 ? [query] : []));
      return (found.length ? found : [answer.row]).map((query) => [query, query]);
    }
    return sequence.tokens.slice(front).map((_, place) => [place + front - 1, place + front]);
  }

  return {
    element,
    show(layer, weights, head) {
      const sequence = described.sequences[layer.queries];
      const keys = described.sequences[layer.keys];
      element.hidden = !(sequence.tokens && keys.grid);
      if (element.hidden) return;
      buttons = chosen(layer).map(([query, named]) => {
        const canvas = make("canvas", { "aria-hidden": "true" });
        const draw = () => drawLit(canvas, image, keys, weights.reads(head, query), WIDTH);
        if (image.complete && image.naturalWidth) draw();
        else image.addEventListener("load", draw, { once: true });
        return make("button", { type: "button", class: "word-view", "data-query": query,
          "aria-label": `What the model attended to for ${sequence.tokens[named]}`,
          onpointerenter: () => state.point(layer.queries, query), onpointerleave: state.leave,
          onfocus: () => state.pick(layer.queries, query) }, canvas, make("span", {}, sequence.tokens[named]));
      });
      element.replaceChildren(...buttons);
      this.point();
    },
    point() {
      for (const button of buttons) {
        const { at } = state.values;
        button.classList.toggle("current", Boolean(at) && Number(button.dataset.query) === at.index
          && !described.sequences[at.sequence].grid);
      }
    },
  };
}
