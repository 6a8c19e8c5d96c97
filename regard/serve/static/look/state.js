/** What the panels of a look share: the layer and head, the token pointed at, the temperature, what is asked. Who cares, listens. */

/**
 * @typedef {{sequence: number, index: number}} At
 * @typedef {{layer: number, head: number, tab: string, pin: At | null, at: At | null
 *            temperature: number, view: string | null, output: string, against: string | null}} Values
 *   `at` is the token that is pointed at, else the one that was picked (`pin`); `tab` is a kind of attention; a `view` is of
 *   one `output` or of all (""), a patch `against` another text
 */

/** @param {Values} values */
export function createState(values) {
  const listeners = [];

  function set(changes) {
    const changed = Object.keys(changes).filter((name) => !same(values[name], changes[name]));
    if (changed.length === 0) return;
    Object.assign(values, changes);
    for (const listener of listeners) listener(new Set(changed));
  }

  return {
    values,
    set,
    /** @param {(changed: Set<string>) => void} listener */
    listen: (listener) => listeners.push(listener),
    /** @param {number} sequence  @param {number} index */
    point: (sequence, index) => set({ at: { sequence, index } }),
    leave: () => set({ at: values.pin }),
    /** @param {number} sequence  @param {number} index */
    pick: (sequence, index) => set({ at: { sequence, index }, pin: { sequence, index } }),
    free: () => set({ at: null, pin: null }),
  };
}

function same(one, other) {
  if (one === null || other === null || typeof one !== "object") return one === other;
  return one.sequence === other.sequence && one.index === other.index;
}
