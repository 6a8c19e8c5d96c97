/**
 * What the page remembers: settings and theme for good, texts and the API key for this tab only.
 * A browser may refuse storage; the page then works without memory.
 */

/** @param {string} name  @param {any} fallback  @param {"localStorage" | "sessionStorage"} where */
export function recall(name, fallback, where = "localStorage") {
  try {
    const kept = window[where].getItem(`regard.${name}`);
    return kept === null ? fallback : JSON.parse(kept);
  } catch {
    return fallback;
  }
}

/** @param {string} name  @param {any} value  @param {"localStorage" | "sessionStorage"} where */
export function remember(name, value, where = "localStorage") {
  try {
    window[where].setItem(`regard.${name}`, JSON.stringify(value));
  } catch {
    // Storage is full or refused: nothing is lost but the memory.
  }
}
