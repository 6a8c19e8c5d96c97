/** Arrays as the server packs them, and the weights of a layer by token. */

const KINDS = { f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array, u1: Uint8Array };

/** @param {{shape: number[], type: string, data: string} | null} packed */
export function unpack(packed) {
  if (packed === null || packed === undefined) return null;
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const values = packed.type === "f2" ? halves(new Uint16Array(bytes.buffer)) : new KINDS[packed.type](bytes.buffer);
  return { shape: packed.shape, values };
}

/** Floats of two bytes as floats of four. */
function halves(words) {
  const found = new Float32Array(words.length);
  for (let i = 0; i < words.length; i += 1) {
    const [sign, exponent, fraction] = [words[i] & 0x8000 ? -1 : 1, (words[i] >> 10) & 31, words[i] & 1023];
    if (exponent === 31) found[i] = fraction ? NaN : sign * Infinity;
    else found[i] = sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
  }
  return found;
}

/** All weights of one layer: bytes, each row in steps of 1/255 of its strongest (`tops`). */
export class Weights {
  constructor(layer, packed) {
    const weights = unpack(packed.weights);
    [this.windows, this.heads, this.queries, this.keys] = weights.shape;
    this.bytes = weights.values;
    this.tops = unpack(packed.tops).values;
    this.places = layer.windows ? unpack(layer.windows.cells).values : null;
    this.total = this.queries; // of the query sequence, all windows together
    if (this.places) {
      this.total = layer.total;
      this.where = new Int32Array(layer.total);
      this.places.forEach((place, at) => {
        if (place >= 0) this.where[place] = at;
      });
    }
  }

  /** The window of a token, and its place in it. */
  place(token) {
    if (!this.places) return [0, token];
    return [Math.floor(this.where[token] / this.queries), this.where[token] % this.queries];
  }

  at(window, head, query, key) {
    const row = (window * this.heads + head) * this.queries + query;
    return (this.bytes[row * this.keys + key] * this.tops[row]) / 255;
  }

  /** What a token attends to: a weight for each key of the sequence. */
  reads(head, token) {
    const [window, query] = this.place(token);
    const row = (window * this.heads + head) * this.queries + query;
    const [first, step] = [row * this.keys, this.tops[row] / 255];
    const found = new Float32Array(this.places ? this.total : this.keys);
    for (let key = 0; key < this.keys; key += 1) {
      const place = this.places ? this.places[window * this.queries + key] : key;
      if (place >= 0) found[place] = this.bytes[first + key] * step;
    }
    return found;
  }

  /** Which queries attend to a token: the weight that each query gives it. */
  readBy(head, token) {
    const found = new Float32Array(this.total);
    const [window, key] = this.place(token);
    for (let query = 0; query < this.queries; query += 1) {
      const place = this.places ? this.places[window * this.queries + query] : query;
      if (place >= 0) found[place] = this.at(window, head, query, key);
    }
    return found;
  }

  /** What all tokens look at, on average. */
  mean(head) {
    const found = new Float32Array(this.places ? this.total : this.keys);
    for (let token = 0; token < this.total; token += 1) {
      this.reads(head, token).forEach((weight, key) => {
        found[key] += weight / this.total;
      });
    }
    return found;
  }
}

/** Places of the strongest of some weights, best first; none below `least`. */
export function strongest(weights, count = 5, least = 0.005) {
  const kept = [];
  for (let i = 0; i < weights.length; i += 1) if (weights[i] >= least) kept.push(i);
  return kept.sort((a, b) => weights[b] - weights[a]).slice(0, count);
}
