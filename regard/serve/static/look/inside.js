/**
 * A look: what the server (or the file) described, the panels that show it, and what they share.
 *
 * @typedef {object} Look
 * @property {object} described  sequences, layers, answer: as `Page.describe` gives them
 * @property {import("./source.js").Source} source
 * @property {ReturnType<typeof import("./state.js").createState>} state
 * @property {object | null} layer  the layer that is chosen, once its weights are there
 * @property {import("./unpack.js").Weights | null} weights
 * @property {number[][] | null} effects  how much each head changes, once that was asked
 * @property {(changes: {target?: number[], kept?: number | null, off?: Array}) => Promise<void>} again  another pass, live only
 * @typedef {{name: string, title: string, folded?: boolean, fits: (described: object) => boolean,
 *            mount: (host: HTMLElement, look: Look) => ({end?: () => void} | void)}} Panel
 *   A new panel is one file, and one line in panels.js
 */

import { make } from "../make.js";
import { recall, remember } from "../memory.js";
import { panels } from "./panels.js";
import { headName, lengthOf } from "./sequences.js";
import { createState } from "./state.js";

/**
 * @param {{described: object, source: object, announce: (text: string) => void, fail: (error: Error) => void,
 *          again?: (changes: object) => void, before?: object | null}} options
 *   `before` are the values of the look that this one replaces
 */
export function createInside({ described, source, announce, fail, again, before }) {
  for (const layer of described.layers) layer.total = lengthOf(described.sequences[layer.queries]);
  const state = createState(startWith(described, before));
  const [weighed, opened, effected] = [[], new Map(), []];
  const [ends, folds] = [[], new Map()];
  const look = {
    described, source, state, announce, fail, again,
    layer: null, weights: null, effects: null, alignment: null,
    head: () => headName(described, state.values.layer, state.values.head),
    whenWeights: (listener) => weighed.push(listener),
    whenEffects: (listener) => effected.push(listener),
    whenOpened: (name, listener) => opened.set(name, listener),
    isOpen: (name) => folds.get(name)?.open ?? true,
    setEffects({ effects, alignment }) {
      [look.effects, look.alignment] = [effects, alignment];
      for (const listener of effected) listener();
    },
  };
  const host = make("div", { class: "look" });
  for (const panel of panels.filter((one) => one.fits(described))) {
    const inner = make("div", { class: "panel-body" });
    const open = recall(`panel.${panel.name}`, !panel.folded);
    const element = panel.folded
      ? make("details", { class: "panel", "data-panel": panel.name, open, ontoggle: () => toggle(panel, element) },
        make("summary", {}, panel.title), inner)
      : make("section", { class: "panel", "data-panel": panel.name, "aria-label": panel.title },
        make("h2", {}, panel.title), inner);
    if (panel.folded) folds.set(panel.name, element);
    host.append(element);
    host.classList.add(`has-${panel.name}`);
    const mounted = panel.mount(inner, look);
    if (mounted?.end) ends.push(mounted.end);
  }

  function toggle(panel, element) {
    remember(`panel.${panel.name}`, element.open);
    if (element.open) opened.get(panel.name)?.();
  }

  /** The weights of the chosen layer; while they come, the last ones stay. */
  async function load() {
    const { layer } = state.values;
    if (!described.layers[layer]) return;
    try {
      const weights = await source.layer(layer);
      if (layer !== state.values.layer) return;
      [look.layer, look.weights] = [described.layers[layer], weights];
      for (const listener of weighed) listener();
    } catch (error) {
      fail(error);
    }
  }

  state.listen((changed) => {
    if (changed.has("layer")) {
      [look.layer, look.weights] = [null, null];
      load();
    } else if (changed.has("head")) {
      for (const listener of weighed) if (look.weights) listener();
    }
  });
  load();
  const element = described.opaque?.length ? make("div", { class: "stack" }, opaque(described), host) : host;
  return { element, values: state.values, end: () => ends.forEach((end) => end()) };
}

/** Why there is no attention to be seen. */
const opaque = (described) => make("p", { class: "note", "data-said": "opaque" }, `The kernel ${described.opaque.join(", ")} has no weights ${
  ""}between tokens to show: its layers, and the views that rest on them, are left out.`);

/** What was chosen before stays, where there still is such a layer or token. */
function startWith(described, before) {
  const fits = before && described.layers[before.layer] && before.head < described.layers[before.layer].heads;
  const across = described.layers.findIndex(({ tab }) => tab === "cross"); // translations are about that
  const layer = fits ? before.layer : Math.max(0, across);
  const there = (at) => at && described.sequences[at.sequence] && at.index < lengthOf(described.sequences[at.sequence]);
  const pin = there(before?.pin) ? before.pin : null;
  return { layer, head: fits ? before.head : 0, tab: described.layers[layer]?.tab ?? "",
    pin, at: pin, temperature: before?.temperature ?? 1, view: before?.view ?? null, mechanism: before?.mechanism ?? null,
    output: before?.output ?? "", against: before?.against ?? null };
}
