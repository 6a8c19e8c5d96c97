/** The panels of a look, from top to bottom. A new one is one file and one line here. */

import { panel as attention } from "./attention.js";
import { panel as mechanisms } from "./mechanisms.js";
import { panel as probabilities } from "./probabilities.js";
import { panel as numbers } from "./numbers.js";
import { panel as rests } from "./rests.js";
import { panel as sound } from "./sound.js";
import { panel as tokens } from "./tokens.js";
import { merges, vectors } from "./vectors.js";

/** @type {import("./inside.js").Panel[]} */
export const panels = [tokens, sound, attention, rests, mechanisms, numbers, probabilities, merges, vectors];
