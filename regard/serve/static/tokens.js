/** Text that a model writes, token by token; each token can show how probable it was, and what else was. */

import { createBars } from "./bars.js";
import { make, percent, visible } from "./make.js";
import { recall, remember } from "./memory.js";

const MOST_BITS = 8; // a token of 1/256 is shaded fully

/** @param {{announce: (text: string) => void}} context  @param {string} name */
export function createTokenText(context, name) {
  const bubble = make("div", { class: "bubble", hidden: true });
  const text = make("div", {
    class: "tokens", tabIndex: 0, role: "group", "aria-label": `${name}; arrow keys walk through its tokens`,
    onkeydown: walk, onblur: hide, onpointerleave: hide, onpointerover: point, onclick: point,
  });
  const element = make("div", { class: "written" }, text, bubble);
  /** @type {Map<HTMLElement, import("./chunks.js").Token[]>} */
  const details = new Map();
  let waiting = []; // tokens that are not yet whole characters
  let current = null;

  function point(event) {
    if (details.has(event.target)) show(event.target);
  }

  function walk(event) {
    const spans = [...details.keys()];
    const at = spans.indexOf(current);
    const last = spans.length - 1;
    const next = { ArrowRight: at + 1, ArrowLeft: at < 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (!spans[next]) return;
    show(spans[next]);
    const said = details.get(spans[next]).map((token) => `${visible(token.token)}, ${percent(token.probability)}`);
    context.announce(said.join("; "));
  }

  function hide() {
    current?.classList.remove("current");
    current = null;
    bubble.hidden = true;
  }

  function show(span) {
    hide();
    current = span;
    span.classList.add("current");
    bubble.replaceChildren(...details.get(span).flatMap((token) => {
      const bars = createBars({ name: "Most probable here" });
      bars.show(token.others.map((other) => ({ ...other, label: visible(other.label) })));
      return [make("p", {}, make("code", {}, visible(token.token)), ` ${percent(token.probability)}`), bars.element];
    }));
    bubble.hidden = false;
    // Below the token, and inside the text's box at every width.
    const box = element.getBoundingClientRect();
    const place = [...span.getClientRects()].at(-1) ?? span.getBoundingClientRect();
    const left = Math.max(0, Math.min(place.left - box.left, box.width - bubble.offsetWidth));
    bubble.style.left = `${left}px`;
    bubble.style.top = `${place.bottom - box.top + 6}px`;
  }

  function addSpan(part, tokens) {
    const span = make("span", { class: part.startsWith("\n") ? "token newline" : "token" }, part);
    if (tokens.length > 0) {
      const bits = tokens.reduce((sum, token) => sum - Math.log2(token.probability), 0);
      span.style.setProperty("--surprise", String(Math.min(1, bits / MOST_BITS)));
      details.set(span, tokens);
    }
    text.append(span);
  }

  return {
    element,
    /** @param {import("./chunks.js").Piece} piece */
    add(piece) {
      const tokens = [...waiting, ...piece.tokens];
      waiting = piece.text === "" ? tokens : [];
      if (piece.text === "") return;
      if (tokens.map((token) => token.token).join("") !== piece.text) return addSpan(piece.text, tokens);
      for (const token of tokens) addSpan(token.token, [token]);
    },
    text: () => text.textContent,
    clear() {
      hide();
      details.clear();
      waiting = [];
      text.replaceChildren();
    },
    /** @param {boolean} on  shade every token by how little probable it was */
    shade: (on) => element.classList.toggle("shaded", on),
  };
}

/** A box to tick that shades tokens; remembered. */
export function createShadeBox(apply) {
  const box = make("input", { type: "checkbox", checked: recall("shade", false), onchange: () => turn(box.checked) });
  const turn = (on) => {
    remember("shade", on);
    apply(on);
  };
  apply(box.checked);
  return make("label", { class: "check" }, box, "Shade by probability");
}
