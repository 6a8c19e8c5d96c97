/** Names of tokens and patches, as all panels use them. */

/** @param {object} sequence  @param {number} index */
export function nameOf(sequence, index) {
  if (sequence.tokens) return sequence.tokens[index];
  if (index < sequence.front.length) return sequence.front[index];
  const place = index - sequence.front.length;
  return `${Math.floor(place / sequence.grid[1])},${place % sequence.grid[1]}`;
}

/** Who looks, for each row: a decoder looks across while it writes the token that comes next. */
export function askers({ sequences, answer }, layer) {
  const { tokens } = sequences[layer.queries];
  const writes = answer.kind === "next" && layer.tab === "cross";
  return writes ? tokens.map((_, index) => `→ ${tokens[index + 1] ?? "…"}`) : tokens;
}

export const lengthOf = (sequence) =>
  sequence.tokens ? sequence.tokens.length : sequence.front.length + sequence.grid[0] * sequence.grid[1];

/** A head in words; where only some heads were captured, `numbers` says which. */
export const headName = (described, layer, head) => `layer ${placeOf(described, layer)}, head ${described.numbers?.[head] ?? head}`;

/** Whether a head is switched off. */
export const isOff = ({ layers, off }, layer, head) => off.some(([name, number]) => name === layers[layer].name && number === head);

/** Layers are counted within their tab, as people count them. */
export const placeOf = ({ layers }, layer) =>
  layers.slice(0, layer).filter((other) => other.tab === layers[layer].tab).length;

export const TITLES = {
  encoder: "Encoder",
  decoder: "Decoder",
  cross: "Cross-attention",
  image: "Image",
  text: "Text",
};
