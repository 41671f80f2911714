/** The view of charts: a grid of panels, of which only those in view ask and draw, one a frame. */

import { element, fill } from "./dom.js";
import { findings, showFindings } from "./findings.js";
import { Panel } from "./panel.js";
import { change, read } from "./state.js";
import { colour } from "./theme.js";

const panels = new Map();
const inView = new Set();
let runs = [];
let isBusy = false;

const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) inView.add(entry.target.dataset.panel);
    else inView.delete(entry.target.dataset.panel);
  }
  updatePanels();
}, { rootMargin: "150px" });

const grid = element("div", { class: "grid" });
const empty = element("p", { class: "quiet" }, "Choose a run.");
const bounds = ["first", "last"].map((name) => element("input", {
  type: "number", min: "0", step: "1", inputmode: "numeric", size: "7", "aria-label": `${name} step shown`,
  change: (event) => change({ [name]: event.target.value === "" ? null : Math.max(0, Math.floor(Number(event.target.value))) }),
}));
const all = element("button", { type: "button", click: () => change({ first: null, last: null }) }, "All steps");
const bar = element("div", { class: "bar" }, element("span", {}, "Steps"), bounds[0], element("span", {}, "to"), bounds[1], all,
  element("span", { class: "quiet wide" }, "Drag across a chart to zoom into all of them."),
  element("span", { class: "space" }));
const mean = element("select", { id: "mean", change: (event) => change({ mean: Number(event.target.value) > 1 ? Number(event.target.value) : null }) },
  [1, 10, 50].map((steps) => element("option", { value: steps }, steps === 1 ? "each step" : `mean over ${steps} steps`)));
bar.append(element("label", { for: "mean" }, "Show"), mean);
const key = element("ul", { class: "key", "aria-label": "Runs shown" });
const view = element("div", {}, bar, key, findings, empty, grid);

/** Puts the view on the page. */
export function openCharts(main) {
  fill(main, view);
}

/** Shows these runs: the chosen ones with their facts, and all panels there are. */
export function showCharts(chosen, allPanels) {
  runs = chosen;
  const { first, last } = read();
  [first, last].forEach((value, at) => { if (document.activeElement !== bounds[at]) bounds[at].value = value ?? ""; });
  mean.value = String(read().mean ?? 1);
  if (!mean.value) mean.value = "1";
  empty.hidden = runs.length > 0;
  drawKey();
  showFindings(runs);
  const wanted = new Set(runs.flatMap((run) => run.panels));
  for (const facts of allPanels) {
    if (wanted.has(facts.key) && !panels.has(facts.key)) {
      const panel = new Panel(facts);
      panels.set(facts.key, panel);
      observer.observe(panel.node);
    } else if (!wanted.has(facts.key) && panels.has(facts.key)) {
      observer.unobserve(panels.get(facts.key).node);
      inView.delete(facts.key);
      panels.get(facts.key).close();
      panels.delete(facts.key);
    }
  }
  const ordered = allPanels.filter((facts) => panels.has(facts.key)).map((facts) => panels.get(facts.key).node);
  if (ordered.some((node, at) => grid.children[at] !== node)) grid.replaceChildren(...ordered);
  updatePanels();
}

/** Which colour is which run, where there are several. */
function drawKey() {
  key.hidden = runs.length < 2;
  fill(key, runs.map((run, at) => {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.color = colour(at);
    return element("li", {}, swatch, run.name);
  }));
}

/** Draws all charts anew in other colours. */
export function recolourCharts() {
  drawKey();
  panels.forEach((panel) => panel.render());
}

async function updatePanels() {
  if (isBusy) return;
  isBusy = true;
  try {
    for (const key of panels.keys()) {
      if (!inView.has(key)) continue;
      const { first, last, mean: window } = read();
      const range = first === null && last === null ? null : [first ?? 0, last ?? Math.max(1, ...runs.map((run) => run.step))];
      const panel = panels.get(key);
      const before = panel.drawn;
      await panel.update(runs, range, window);
      if (panel.drawn !== before) await new Promise(requestAnimationFrame);
    }
  } finally {
    isBusy = false;
  }
}
