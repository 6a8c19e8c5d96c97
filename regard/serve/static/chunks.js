/** Pieces of streamed answers, in one form for completions and for chat. */

/**
 * @typedef {import("./bars.js").Bar} Bar
 * @typedef {{token: string, probability: number, others: Bar[]}} Token
 * @typedef {{text: string, tokens: Token[]}} Piece
 */

/** @returns {Piece} */
export function completionPiece(event) {
  const choice = event.choices[0];
  const logprobs = choice?.logprobs;
  const tokens = (logprobs?.tokens ?? []).map((token, index) =>
    tokenOf(token, logprobs.token_logprobs[index], Object.entries(logprobs.top_logprobs?.[index] ?? {})));
  return { text: choice?.text ?? "", tokens };
}

/** @returns {Piece} */
export function chatPiece(event) {
  const choice = event.choices[0];
  const tokens = (choice?.logprobs?.content ?? []).map(({ token, logprob, top_logprobs: top }) =>
    tokenOf(token, logprob, top.map((other) => [other.token, other.logprob])));
  return { text: choice?.delta?.content ?? "", tokens };
}

function tokenOf(token, logprob, others) {
  const ranked = others.map(([label, value]) => ({ label, probability: Math.exp(value), chosen: label === token }));
  return { token, probability: Math.exp(logprob), others: ranked.sort((a, b) => b.probability - a.probability) };
}

/** Counts tokens and time, from the request on. */
export function createMeter() {
  const start = performance.now();
  let tokens = 0;
  let first = null;
  let last = null;
  return {
    /** @param {Piece} piece */
    add({ text, tokens: come }) {
      if (!text && come.length === 0) return;
      last = performance.now();
      first ??= { time: last, tokens: come.length || 1 };
      tokens += come.length || 1;
    },
    summary() {
      if (first === null) return "No tokens.";
      const later = tokens - first.tokens; // the first ones show the wait, the others the speed
      const seconds = (last - first.time) / 1000;
      const wait = `first after ${((first.time - start) / 1000).toFixed(2)} s`;
      const speed = later > 0 && seconds > 0 ? [`${(later / seconds).toFixed(1)} tokens/s`] : [];
      return [`${tokens} ${tokens === 1 ? "token" : "tokens"}`, wait, ...speed].join(" · ");
    },
  };
}
