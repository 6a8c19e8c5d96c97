/** Speaks with the server: JSON in and out, and answers that come in pieces (server-sent events). */

import { recall } from "./memory.js";

/** Where the page lives; also right behind a proxy that serves it below a path. */
export const BASE = new URL(".", location.href).href.replace(/\/$/, "");

/** What went wrong, in the server's words; `param` is the field of the request that it is about, `code` its name, if any. */
export class ApiError extends Error {
  constructor(message, param = null, code = null) {
    super(message);
    [this.param, this.code] = [param, code];
  }
}

let keyWanted = () => {};

/** @param {() => void} listener called when the server wants another API key */
export function whenKeyWanted(listener) {
  keyWanted = listener;
}

export const apiKey = () => recall("key", "", "sessionStorage");

async function request(path, { body, signal } = {}) {
  const headers = {};
  if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
  const form = body instanceof FormData; // the browser says itself where its parts begin
  if (body && !form) headers["Content-Type"] = "application/json";
  let response;
  try {
    const sent = body ? { method: "POST", body: form ? body : JSON.stringify(body) } : {};
    response = await fetch(BASE + path, { ...sent, headers, signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  if (response.status === 401) {
    keyWanted();
    throw new ApiError(apiKey() ? "The server does not know this API key: enter another one above."
      : "The server wants an API key: enter it above.");
  }
  throw await errorIn(response);
}

async function errorIn(response) {
  try {
    const { message, param, code } = (await response.json()).error;
    return new ApiError(message, param, code);
  } catch {
    return new ApiError(`The server answered with ${response.status} and no words.`); // a proxy's own page, for example
  }
}

/** @param {string} path  @param {AbortSignal} [signal] */
export async function get(path, signal) {
  return (await request(path, { signal })).json();
}

/** @param {string} path  @param {object} body  @param {AbortSignal} [signal] */
export async function post(path, body, signal) {
  return (await request(path, { body, signal })).json();
}

/**
 * Yields the objects of a streamed answer as they come.
 * @param {string} path  @param {object} body  @param {AbortSignal} [signal]
 */
export async function* stream(path, body, signal) {
  const response = await request(path, { body, signal });
  try {
    yield* events(response.body);
  } catch (error) {
    if (signal?.aborted || error instanceof ApiError) throw error;
    throw new ApiError("The answer broke off: the connection to the server was lost.");
  }
}

/**
 * The objects in server-sent events, until `[DONE]`. The bytes may be split anywhere.
 * @param {ReadableStream<Uint8Array>} bytes
 */
export async function* events(bytes) {
  let rest = "";
  let data = [];
  for await (const text of decoded(bytes)) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines.map((each) => each.replace(/\r$/, ""))) {
      if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      if (line !== "" || data.length === 0) continue;
      const whole = data.join("\n");
      data = [];
      if (whole === "[DONE]") return;
      const event = JSON.parse(whole);
      if (event.error) throw new ApiError(event.error.message);
      yield event;
    }
  }
  throw new ApiError("The answer broke off before its end.");
}

async function* decoded(bytes) {
  const reader = bytes.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    reader.cancel().catch(() => {}); // whoever stops reading also stops the sender
  }
}
