/** A look that stands in a file of its own: the same panels, and all numbers inside. */

import { createInside } from "./look/inside.js";
import { keptSource } from "./look/source.js";
import { make } from "./make.js";
import { at, kept } from "./shell.js";

const host = at("host");
const { input, model, name } = kept.look;

document.title = `${name || model} · Regard`;
at("of").textContent = [name, model, input.text, input.second, ...(input.texts ?? [])].filter(Boolean).join(" · ");
const fail = (error) => host.prepend(make("p", { class: "problem", role: "alert" }, error.message));
const { element } = createInside({
  described: kept.look, source: keptSource(kept), fail,
  announce: (text) => {
    at("announcer").textContent = text;
  },
});
host.append(element);
