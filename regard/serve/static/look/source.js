/** Where a look's numbers come from: a server (see views/look.js), or the page's own file. Asked once, kept. */

import { unpack, Weights } from "./unpack.js";

/**
 * @typedef {{live: boolean, layer: (layer: number) => Promise<Weights>,
 *            head: (layer: number, head: number, window?: number) => Promise<object | null>,
 *            probabilities: (row: number) => Promise<object | null>,
 *            view: (view: string, more?: {at?: number, against?: string}) => Promise<object>,
 *            effects: () => Promise<{effects: number[][], alignment: object | null} | null>}} Source
 */

/** @param {object} described  @param {(path: string, more: object) => Promise<any>} ask  @param {boolean} live */
export function createSource(described, ask, live) {
  const kept = new Map();

  function once(path, more, read) {
    const name = `${path} ${JSON.stringify(more)}`;
    if (!kept.has(name)) {
      kept.set(name, ask(path, more).then(read));
      kept.get(name).catch(() => kept.delete(name)); // asked again, it may work
    }
    return kept.get(name);
  }

  const numbers = (found) => found && {
    ...found,
    ...Object.fromEntries(["q", "k", "v", "bias", "scores", "mask"].map((name) => [name, unpack(found[name])])),
  };
  return {
    live,
    layer: (layer) => once("layer", { layer }, (found) => new Weights(described.layers[layer], found)),
    head: (layer, head, window = 0) => once("head", { layer, head, window }, numbers),
    probabilities: (row) => once("probabilities", { row }, (found) => found),
    effects: () => once("effects", {}, (found) => found),
    view: (view, more = {}) => once("view", { view, ...more }, (found) => found),
  };
}

/** @param {object} kept  what the file has inside */
export function keptSource(kept) {
  const find = {
    layer: ({ layer }) => kept.layers[layer],
    head: ({ layer, head, window }) => kept.heads[`${layer},${head},${window}`] ?? null,
    probabilities: ({ row }) => kept.probabilities[row] ?? null,
    effects: () => kept.effects && { effects: kept.effects, alignment: kept.alignment },
    view({ view }) {
      const found = kept.views[view] ?? kept.mechanisms[view];
      if (!found || found.problem) throw new Error(found?.problem ?? "This file is without this view: look at the model itself, regard look RUN INPUT");
      return found;
    },
  };
  return createSource(kept.look, async (path, more) => find[path](more), false);
}
