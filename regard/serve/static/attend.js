/** Attention worked out by hand: sliders for the query and the temperature, words to hide, and every number. */

import { make } from "./make.js";
import { at, kept } from "./shell.js";

const { words, features, keys, values, queries, scores, allowed, names } = kept;

const state = {
  index: kept.index,
  q: kept.q ? [...kept.q] : null,
  temperature: kept.temperature,
  seen: [...allowed[kept.index]],
};

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const number = (x) => (!Number.isFinite(x) ? "hidden" : x !== 0 && Math.abs(x) < 5e-5 ? x.toExponential(1) : x.toFixed(4));
const feature = (i) => features[i] ?? String(i);

/** The seven steps; the core computes the same in Python, and a test compares the two. */
function workOut() {
  const raw = state.q ? keys.map((key) => dot(state.q, key)) : scores[state.index];
  const divisor = Math.sqrt(keys ? keys[0].length : 1) * state.temperature;
  const scaled = raw.map((score, i) => (state.seen[i] ? score / divisor : -Infinity));
  const largest = Math.max(...scaled);
  const shifted = scaled.map((x) => Math.exp(x - largest)); // no overflow however low the temperature
  const sum = shifted.reduce((a, b) => a + b, 0);
  const weights = shifted.map((x) => x / sum);
  const output = values ? values[0].map((_, d) => weights.reduce((total, w, i) => total + w * values[i][d], 0)) : null;
  return { raw, divisor, scaled, exponentials: scaled.map(Math.exp), weights, output };
}

function slider(label, { min, max, step, value, oninput }) {
  const shown = make("output", {}, value.toFixed(2));
  const input = make("input", {
    type: "range", min, max, step, value, "aria-label": label,
    oninput: () => {
      shown.textContent = Number(input.value).toFixed(2);
      oninput(Number(input.value));
      show();
    },
  });
  return make("label", { class: "slider" }, make("span", {}, label), input, shown);
}

const controls = make("div", { class: "controls" });
const result = make("div", { class: "worked" });

function cells(row) {
  const top = Math.max(...row.map(Math.abs), 1e-9);
  return make("span", { class: "cells" }, ...row.map((x, i) => {
    const cell = make("span", { class: "cell", title: `${feature(i)} ${x}` }, String(Number(x.toFixed(3))));
    cell.style.setProperty("--share", `${Math.round(70 * Math.abs(x) / top)}%`);
    return cell;
  }));
}

function show() {
  const steps = workOut();
  const heads = ["sees", "word", ...(keys ? ["2 key"] : []), keys ? "3 q·k" : "3 score", `4 ÷ ${Number(steps.divisor.toFixed(3))}`,
    "5 exp", "weight", "", ...(values ? ["6 value"] : [])];
  const rows = words.map((word, i) => {
    const box = make("input", {
      type: "checkbox", checked: state.seen[i], "aria-label": `sees ${word}`,
      onchange: () => {
        state.seen[i] = box.checked;
        if (!state.seen.some(Boolean)) state.seen[i] = true; // a query sees at least one word
        show();
      },
    });
    const fill = make("span", { class: "fill" });
    fill.style.width = `${100 * steps.weights[i]}%`;
    return make("tr", {}, make("td", {}, box), make("th", { scope: "row" }, word), ...(keys ? [make("td", {}, cells(keys[i]))] : []),
      make("td", {}, number(steps.raw[i])), make("td", {}, number(steps.scaled[i])), make("td", {}, number(steps.exponentials[i])),
      make("td", { class: "weight" }, number(steps.weights[i])), make("td", { class: "track" }, fill),
      ...(values ? [make("td", {}, cells(values[i]))] : []));
  });
  const row = [...result.querySelectorAll("input")].indexOf(document.activeElement); // who hides words by keyboard stays there
  result.replaceChildren(
    make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, ...rows)),
    ...(steps.output ? [make("p", { class: "output" }, make("strong", {}, "7 output "),
      ...steps.output.map((x, i) => make("span", { class: "named" }, `${feature(i)} ${number(x)}`)))] : []),
  );
  if (row >= 0) result.querySelectorAll("input")[row].focus();
}

function control() {
  const pick = make("select", {
    "aria-label": "query",
    onchange: () => {
      state.index = Number(pick.value);
      state.q = queries ? [...queries[state.index]] : null;
      state.seen = [...allowed[state.index]];
      control();
      show();
    },
  }, ...names.map((name, i) => make("option", { value: i, selected: i === state.index }, name)));
  const label = make("label", { class: "slider" }, make("span", {}, "1 query"), pick);
  const sliders = (state.q ?? []).map((value, i) => slider(feature(i), {
    min: Math.min(-1, value), max: Math.max(1, value), step: 0.01, value,
    oninput: (x) => {
      state.q[i] = x;
    },
  }));
  const heat = slider("temperature", {
    min: 0.05, max: Math.max(4, state.temperature), step: 0.05, value: state.temperature,
    oninput: (x) => {
      state.temperature = x;
    },
  });
  controls.replaceChildren(label, ...sliders, heat);
}

document.title = `${kept.title || "attention"} · Regard`;
at("of").textContent = kept.title;
at("host").append(controls, result);
control();
show();
