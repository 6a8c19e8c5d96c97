/** The shell: picks a model and a view, and keeps both in the address (`#/write?model=name`). */

import { apiKey, get, whenKeyWanted } from "./api.js";
import { make } from "./make.js";
import { recall, remember } from "./memory.js";
import { problemLine } from "./task.js";
import { views } from "./views/index.js";

const at = (id) => document.getElementById(id);
const [host, picker, navigation, facts] = ["host", "model", "views", "facts"].map(at);

/** @type {import("./views/index.js").Model[]} */
let models = [];
/** @type {import("./views/index.js").Model | null} */
let model = null;
/** @type {{view: import("./views/index.js").View, mounted: import("./views/index.js").Mounted} | null} */
let shown = null;

/** @type {import("./views/index.js").Context} */
const context = {
  get model() {
    return model;
  },
  refresh,
  announce(text) {
    at("announcer").textContent = text;
  },
};

const offered = () => views.filter((view) => model.does.includes(view.needs));
/** Without a view it is the one last used with the model, or the model's first. */
const address = (view, id) => `#/${view?.name ?? ""}?${new URLSearchParams({ model: id })}`;

async function start() {
  leave();
  host.replaceChildren(make("p", { class: "note", role: "status" }, "Asking the server for its models…"));
  try {
    models = (await get("/v1/models")).data;
    if (models.length === 0) throw new Error("The server holds no model. Start it with one: regard serve RUN");
  } catch (error) {
    host.replaceChildren(problemLine(error, start));
    return;
  }
  picker.replaceChildren(...models.map(({ id }) => make("option", { value: id }, id)));
  picker.disabled = false;
  host.replaceChildren();
  route();
}

/** Models are loaded when first asked for: what was learned since is shown. */
async function refresh() {
  try {
    const { data } = await get("/v1/models");
    models = models.map((old) => data.find(({ id }) => id === old.id) ?? old);
    model = models.find(({ id }) => id === model.id) ?? model;
    showFacts();
  } catch {
    // The next request of the user will say what is wrong.
  }
}

/** Brings the page to what the address says, or to the nearest thing that there is. */
function route() {
  if (models.length === 0) return;
  const [path, query] = location.hash.slice(1).split("?");
  const wanted = new URLSearchParams(query).get("model") ?? recall("model", null);
  const before = model;
  model = models.find(({ id }) => id === wanted) ?? models[0];
  remember("model", model.id);
  const opened = recall("views", {}); // the view that was last used with each model
  const name = path.replace("/", "") || opened[model.id];
  const view = offered().find((each) => each.name === name) ?? offered()[0];
  const right = address(view, model.id);
  if (location.hash !== right) history.replaceState(null, "", right);
  picker.value = model.id;
  showFacts();
  showNavigation(view);
  if (!view) return showNothing();
  remember("views", { ...opened, [model.id]: view.name });
  document.title = `${view.title} · ${model.id} · Regard`;
  if (shown?.view !== view) {
    leave();
    shown = { view, mounted: view.mount(host, context) };
  } else if (before !== model) {
    shown.mounted.stop();
    shown.mounted.modelChanged?.();
  }
}

function leave() {
  shown?.mounted.stop();
  shown?.mounted.end?.();
  shown = null;
  host.replaceChildren();
}

function showNothing() {
  leave();
  host.append(make("p", {}, `This page has no view for what ${model.id} does: ${model.does.join(", ") || "nothing"}.`));
}

function showNavigation(current) {
  const focused = navigation.contains(document.activeElement);
  navigation.replaceChildren(...offered().map((view) =>
    make("a", { href: address(view, model.id), "aria-current": view === current ? "page" : null }, view.title)));
  if (focused) navigation.querySelector("[aria-current]")?.focus();
}

function showFacts() {
  const known = [model.loaded ? "loaded" : "is loaded when first asked", model.summary || "can be looked into"];
  if (model.context) known.push(`reads ${model.context} tokens`);
  facts.textContent = model.error ?? known.join(" · ");
  facts.classList.toggle("bad", Boolean(model.error));
}

function setTheme(theme) {
  remember("theme", theme);
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function showKeyForm(open) {
  at("key-form").hidden = !open;
  at("key-button").setAttribute("aria-expanded", String(open));
  if (open) at("key").focus();
}

function useKey(event) {
  event.preventDefault();
  remember("key", at("key").value, "sessionStorage");
  showKeyForm(false);
  start();
}

function press(event) {
  const typing = event.target.closest?.("textarea, input:not([type=radio], [type=checkbox]), select");
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && shown) {
    event.preventDefault();
    shown.mounted.go();
  } else if (event.key === "Escape" && !at("help").open) {
    shown?.mounted.stop();
  } else if (event.key === "?" && !typing) {
    at("help").showModal();
  }
}

picker.addEventListener("change", () => {
  location.hash = address(null, picker.value);
});
at("theme").addEventListener("change", (event) => setTheme(event.target.value));
for (const radio of at("theme").querySelectorAll("input")) {
  radio.checked = radio.value === (document.documentElement.dataset.theme ?? "system");
}
at("key").value = apiKey();
at("key-button").addEventListener("click", () => showKeyForm(at("key-form").hidden));
at("key-form").addEventListener("submit", useKey);
at("help-button").addEventListener("click", () => at("help").showModal());
at("run-examples").checked = recall("examples", true);
at("run-examples").addEventListener("change", (event) => remember("examples", event.target.checked));
at("help-close").addEventListener("click", () => at("help").close());
at("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the address of the view
  at("main").focus();
});
document.addEventListener("keydown", press);
addEventListener("hashchange", route);
whenKeyWanted(() => showKeyForm(true));
start();
