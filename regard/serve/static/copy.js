/** "Copy as" below a result: the call that was just made, in a tab for each language. */

import { curlCall, pythonCall } from "./calls.js";
import { make } from "./make.js";
import { recall, remember } from "./memory.js";

const LANGUAGES = { curl: curlCall, Python: pythonCall };

/** A closed panel "Copy as" with a tab for each language; hidden until there is a call to show. */
export function createCopyPanel() {
  const code = make("code");
  const pre = make("pre", { tabIndex: 0, role: "tabpanel", "aria-label": "The call" }, code);
  const copied = make("span", { class: "note", role: "status" });
  const tabs = Object.keys(LANGUAGES).map((name) =>
    make("button", { type: "button", role: "tab", onclick: () => pick(name) }, name));
  const row = make("div", { role: "tablist", "aria-label": "Language", class: "tabs", onkeydown: walk }, ...tabs);
  const button = make("button", { type: "button", onclick: () => copyText(code, copied) }, "Copy");
  const element = make("details", { class: "copy", hidden: true },
    make("summary", {}, "Copy as curl or Python"), make("div", { class: "row" }, row, button, copied), pre);
  let call = null;

  function pick(name) {
    remember("language", name);
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab.textContent === name));
      tab.tabIndex = tab.textContent === name ? 0 : -1;
    }
    if (call) code.textContent = LANGUAGES[name](call);
    copied.textContent = "";
  }

  function walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
    next.focus();
    pick(next.textContent);
  }

  const kept = recall("language", "curl");
  pick(kept in LANGUAGES ? kept : "curl");
  return {
    element,
    show(next) {
      call = next;
      element.hidden = call === null;
      pick(tabs.find((tab) => tab.tabIndex === 0).textContent);
    },
  };
}

/** The clipboard needs a safe origin; elsewhere the text is selected, and copied in the old way. */
async function copyText(code, copied) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    copied.textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(code);
    copied.textContent = document.execCommand("copy") ? "Copied." : "Selected: press Ctrl+C or ⌘C.";
  }
}
