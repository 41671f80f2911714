/** Starts the page: the views, the list of runs, and a look at the server every two seconds while the page is seen. */

import { ask } from "./api.js";
import { openAnswers, showAnswers } from "./answers.js";
import { openCharts, recolourCharts, showCharts } from "./charts.js";
import { element, fill } from "./dom.js";
import { loadLibrary } from "./plot.js";
import { openQuestion, showQuestion } from "./question.js";
import { drawRuns } from "./runs.js";
import { change, onChange, read } from "./state.js";
import { startTheme } from "./theme.js";

const INTERVAL_MS = 2000;
const VIEWS = {
  charts: { open: openCharts, show: (chosen) => showCharts(chosen, found.panels) },
  answers: { open: openAnswers, show: showAnswers },
  question: { open: openQuestion, show: showQuestion },
};
const part = (id) => document.getElementById(id);
let found = { runs: [], panels: [] };
let opened = null;

function show() {
  const state = read();
  const name = state.view in VIEWS ? state.view : "charts";
  for (const button of part("views").children) {
    if (button.dataset.view === name) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  drawRuns(part("runs"), part("runs-count"), found.runs);
  if (opened !== name) {
    opened = name;
    VIEWS[name].open(part("main"));
  }
  part("main").dataset.colour = state.colour;
  const chosen = state.runs.map((run) => found.runs.find((one) => one.name === run)).filter(Boolean);
  VIEWS[name].show(chosen);
}

async function look() {
  try {
    found = await ask("runs");
    const isLive = found.runs.some((run) => run.state === "running");
    part("status").textContent = isLive ? "live" : "";
    part("status").className = isLive ? "live" : "";
    const known = new Set(found.runs.map((run) => run.name));
    const chosen = read().runs;
    if (!chosen.length && found.runs.length && !location.hash) {
      const first = found.runs.find((run) => run.panels.length) ?? found.runs[0];
      history.replaceState(null, "", `#${new URLSearchParams({ view: "charts", run: first.name })}`);
    } else if (chosen.some((run) => !known.has(run)) && found.runs.length) {
      change({ runs: chosen.filter((run) => known.has(run)) });
    }
    show();
  } catch (error) {
    part("status").textContent = `No answer from the server (${error.message}); trying again.`;
    part("status").className = "lost";
  }
}

async function watch() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
  }
}

for (const button of part("views").children) button.addEventListener("click", () => change({ view: button.dataset.view }));
part("skip").addEventListener("click", (event) => {
  event.preventDefault();
  part("main").focus();
});
if (matchMedia("(max-width: 50rem)").matches) part("runs-box").open = false;
startTheme(part("theme"), () => {
  show();
  recolourCharts();
});
onChange(show);
document.addEventListener("visibilitychange", () => document.hidden || look());
fill(part("main"), element("p", { class: "quiet" }, "Reading the runs…"));
watch();
requestAnimationFrame(() => setTimeout(loadLibrary));
