/** One thing that a view asks of the server: Go and Stop, how it stands, and what went wrong in words. */

import { make } from "./make.js";

/**
 * @typedef {{label: string, context: import("./views/index.js").Context, work: (signal: AbortSignal) => Promise<void>,
 *            summary?: () => string, again?: boolean}} Task
 * @param {Task} task  `work` asks and shows; `summary` says what came, also when it was stopped; Go while it works begins
 *                     `again`, or does nothing
 */
export function createTask({ label, context, work, summary, again = true }) {
  const status = make("p", { class: "status", role: "status" });
  const problem = make("div", { hidden: true });
  const goButton = make("button", { type: "button", class: "primary go", onclick: go }, label);
  const stopButton = make("button", { type: "button", class: "stop", hidden: true, onclick: stop }, "Stop");
  /** @type {AbortController | null} */
  let running = null;

  async function go() {
    if (running && !again) return;
    stop();
    const own = new AbortController();
    running = own;
    const { model } = context;
    problem.hidden = true;
    stopButton.hidden = false;
    status.textContent = model.loaded ? "Working…" : "Loading the model… The first request may take some seconds.";
    status.classList.add("busy");
    try {
      await work(own.signal);
      if (running === own) status.textContent = summary?.() ?? "Done.";
    } catch (error) {
      if (running === own) fail(error);
    } finally {
      if (running === own) rest();
    }
    if (!model.loaded) context.refresh();
  }

  function stop() {
    if (!running) return;
    const own = running;
    rest();
    own.abort();
    status.textContent = `Stopped. ${summary?.() ?? ""}`;
  }

  function rest() {
    running = null;
    status.classList.remove("busy");
    if (document.activeElement === stopButton) goButton.focus();
    stopButton.hidden = true;
  }

  function fail(error) {
    status.textContent = "";
    problem.replaceChildren(problemLine(error, go));
    problem.hidden = false;
  }

  return {
    element: make("div", { class: "task" }, make("div", { class: "row" }, goButton, stopButton, status), problem),
    go,
    stop,
    /** The first piece is there: nobody waits for the model any more. @param {string} text */
    say(text) {
      if (running && status.textContent !== text) status.textContent = text;
    },
  };
}

/** @param {Error} error  @param {() => void} retry */
export function problemLine(error, retry) {
  const button = make("button", { type: "button", onclick: retry }, "Retry");
  return make("div", { class: "problem", role: "alert" }, make("p", {}, error.message), button);
}
