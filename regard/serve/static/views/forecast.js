/** What comes next in each series of a table: a chart of its past, its forecast and the interval around it. */

import { post } from "../api.js";
import { createCopyPanel } from "../copy.js";
import { createDrop, uriOf } from "../drop.js";
import { createExamples } from "../examples.js";
import { make, makeSvg } from "../make.js";
import { createSettings } from "../settings.js";
import { createTask } from "../task.js";

const PATH = "/v1/forecast";
const WIDTH = 720;
const HEIGHT = 220;
const EDGES = { left: 64, right: 12, top: 10, bottom: 26 };
const TICKS = 4;
const MOST_CHARTS = 20;
/** @type {import("../settings.js").Setting[]} */
const SETTINGS = [
  { name: "horizon", label: "Steps", kind: "number", min: 1, max: 100000, step: 1, note: "empty: all that the model does" },
  { name: "start", label: "From", kind: "text", note: "a date; empty: after the last value" },
];

/** @type {import("./index.js").View} */
export const view = {
  name: "forecast",
  title: "Forecast",
  needs: "forecast",

  mount(host, context) {
    const zone = createDrop({ name: "series", label: "Table: a row for each step, as .csv or .tsv", take });
    const settings = createSettings("forecast", SETTINGS);
    const charts = make("div", { class: "stack" });
    const result = make("section", { class: "result", hidden: true, "aria-label": "Result" }, charts);
    const copy = createCopyPanel();
    const task = createTask({ label: "Forecast", context, work });
    const examples = createExamples(context, { name: "forecast", current: () => (table ? null : ""), use });
    /** @type {string | null} */
    let table = null;

    function use(example) {
      table = example.series;
      task.go();
    }

    async function take(file) {
      use({ series: await uriOf(file) });
    }

    async function work(signal) {
      if (!table) throw new Error("Choose a table, or drop one here.");
      const body = { model: context.model.id, series: table, ...settings.values() };
      const [found] = (await post(PATH, body, signal)).data;
      charts.replaceChildren(...found.series.slice(0, MOST_CHARTS).flatMap((each) => [chartOf(each), tableOf(each)]));
      result.hidden = false;
      copy.show({ kind: "forecast", path: PATH, body });
    }

    zone.file.accept = context.model.accept;
    host.append(make("div", { class: "stack" }, zone.element, examples.element, settings.element, task.element, result, copy.element));
    examples.show();
    return {
      ...task,
      modelChanged() {
        result.hidden = true;
        zone.file.accept = context.model.accept;
        examples.show();
      },
    };
  },
};

/** The pairs of quantiles that enclose an interval, the widest first: 0.1 and 0.9, 0.2 and 0.8, … */
function intervals(quantiles) {
  const levels = Object.keys(quantiles).sort((a, b) => a - b);
  return levels.slice(0, Math.floor(levels.length / 2)).map((low, index) => [low, levels[levels.length - 1 - index]]);
}

/** A number as people read it, with as many digits as its size asks for. */
function short(value) {
  return value === null ? "" : Number(value.toPrecision(5)).toLocaleString("en");
}

function chartOf({ name, dates, mean, quantiles, past }) {
  const bands = intervals(quantiles);
  const all = [...past.values, ...mean, ...bands.flat().flatMap((level) => quantiles[level])].filter((value) => value !== null);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const count = past.values.length + dates.length;
  const span = high - low || 1;
  const x = (step) => EDGES.left + (step / Math.max(1, count - 1)) * (WIDTH - EDGES.left - EDGES.right);
  const y = (value) => HEIGHT - EDGES.bottom - ((value - low) / span) * (HEIGHT - EDGES.top - EDGES.bottom);
  const first = past.values.length;
  const line = (values, start) => values.map((value, step) => {
    if (value === null) return "";
    const begins = step === 0 || values[step - 1] === null;
    return `${begins ? "M" : "L"}${x(start + step).toFixed(1)} ${y(value).toFixed(1)}`;
  }).join("");
  const band = ([under, over]) => {
    const back = quantiles[over].map((value, step) => `L${x(first + step).toFixed(1)} ${y(value).toFixed(1)}`).reverse().join("");
    return `${line(quantiles[under], first)}${back}Z`;
  };

  const title = bands.length ? `${percentOf(bands[0])} interval` : "forecast";
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "forecast", role: "img",
    "aria-label": `${name}: ${first} past steps, ${dates.length} forecast, ${title}` });
  for (const value of roundValues(low, high)) {
    svg.append(makeSvg("line", { x1: EDGES.left, x2: WIDTH - EDGES.right, y1: y(value), y2: y(value), class: "grid" }),
      textAt(EDGES.left - 8, y(value) + 4, short(value), "end"));
  }
  for (let tick = 0; tick <= TICKS; tick += 1) {
    const step = Math.round(((count - 1) * tick) / TICKS);
    const anchor = tick === 0 ? "start" : tick === TICKS ? "end" : "middle";
    svg.append(textAt(x(step), HEIGHT - 6, [...past.dates, ...dates][step], anchor));
  }
  for (const pair of bands) svg.append(makeSvg("path", { d: band(pair), class: "band" }));
  svg.append(makeSvg("path", { d: line(past.values, 0), class: "past" }), makeSvg("path", { d: line(mean, first), class: "mean" }));
  const border = x(first - 0.5);
  svg.append(makeSvg("line", { x1: border, x2: border, y1: EDGES.top, y2: HEIGHT - EDGES.bottom, class: "now" }));
  const words = make("p", { class: "note" }, `${name}: a thin line for the past, a thick one for the forecast`, bands.length ? `, around it the ${title}.` : ".");
  return make("figure", { class: "stack" }, make("div", { class: "scroll" }, svg), make("figcaption", {}, words));
}

/** Round numbers between two, a few of them. */
function roundValues(low, high) {
  const rough = (high - low || 1) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, index) => (first + index) * step);
}

function textAt(x, y, words, anchor) {
  const text = makeSvg("text", { x, y, "text-anchor": anchor });
  text.textContent = words;
  return text;
}

function percentOf([low, high]) {
  return `${Number((100 * (high - low)).toPrecision(3))} %`;
}

/** The figures behind a chart. */
function tableOf({ name, dates, mean, quantiles }) {
  const [outer] = intervals(quantiles);
  const columns = [["forecast", mean], ...(outer ?? []).map((level) => [percentOf([0, level]), quantiles[level]])];
  const head = make("tr", {}, ...["", ...columns.map(([title]) => title)].map((title) => make("th", { scope: "col" }, title)));
  const rows = dates.map((date, step) =>
    make("tr", {}, make("th", { scope: "row" }, date), ...columns.map(([, values]) => make("td", {}, short(values[step])))));
  return make("details", {}, make("summary", {}, "Figures"),
    make("div", { class: "scroll" }, make("table", { class: "figures", "aria-label": name }, make("thead", {}, head), make("tbody", {}, ...rows))));
}
