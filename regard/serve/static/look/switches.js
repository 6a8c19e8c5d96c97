/** Heads on and off, what that does to the answer, and which of them matter. */

import { make, percent } from "../make.js";
import { headName, isOff } from "./sequences.js";

/** @param {import("./inside.js").Look} look */
export function createSwitches(look) {
  const { described, state, source } = look;
  const box = make("input", { type: "checkbox", role: "switch", "data-key": "switch", onchange: turn });
  const label = make("label", { class: "check" }, box, "On");
  const told = make("p", { class: "note", "data-said": "switch" });
  const again = make("button", { type: "button", "data-key": "all on", onclick: () => look.again({ off: [] }) }, "All on");
  const element = make("div", { class: "row switches" }, source.live ? label : null, told);
  const ask = make("button", { type: "button", "data-key": "effects", onclick: showEffects }, "Try each head");
  const effects = make("div", { class: "row" }, source.live ? ask : null, make("p", { class: "note", "data-said": "effects" }));

  async function turn() {
    const { layer, head } = state.values;
    const { name } = described.layers[layer];
    const others = described.off.filter((other) => other[0] !== name || other[1] !== head);
    await look.again({ off: box.checked ? others : [...others, [name, head]] });
    show(); // where that failed, nothing has changed
  }

  function show() {
    const { layer, head } = state.values;
    box.checked = !isOff(described, layer, head);
    const effect = look.effects?.[layer][head];
    const count = described.off.length;
    if (count) {
      told.textContent = `${count === 1 ? "One head is" : `${count} heads are`} off: ${percent(described.change)} of the answer is another one.`;
    } else if (effect !== undefined) {
      told.textContent = `Off alone, it changes ${percent(effect)} of the answer.`;
    } else {
      told.textContent = source.live ? "" : "To switch heads off, look at the model itself: regard look RUN INPUT";
    }
    if (count && source.live) element.append(again);
    else again.remove();
  }

  /** The head that looks where it matters. */
  function aligned(best) {
    if (!best) return "";
    return ` Best alignment: ${described.layers[best.layer].tab} ${headName(described, best.layer, best.head)}, which attends to the source ${
      ""}token that matters most for ${percent(best.agrees)} of the ${best.of} written tokens that rest on one.`;
  }

  async function showEffects() {
    ask.disabled = true;
    effects.lastChild.textContent = "Switching every head off, one at a time…";
    try {
      look.setEffects(await source.effects());
    } catch (error) {
      effects.lastChild.textContent = error.message;
      ask.disabled = false;
    }
  }

  look.whenEffects(() => {
    if (!look.effects) return;
    ask.disabled = true;
    const ranked = look.effects.flatMap((row, layer) => row.map((effect, head) => ({ effect, layer, head })))
      .sort((one, other) => other.effect - one.effect);
    if (!ranked.length) return;
    const { effect, layer, head } = ranked[0];
    effects.lastChild.textContent = `Bars below heads: how much of the answer changes when one is off. Most: ${
      described.layers[layer].tab} ${headName(described, layer, head)}, ${percent(effect)}.${aligned(look.alignment)}`;
    show();
  });
  state.listen((changed) => (changed.has("layer") || changed.has("head")) && show());
  show();
  if (!source.live) source.effects().then((found) => found && look.setEffects(found));
  return { element, effects };
}
