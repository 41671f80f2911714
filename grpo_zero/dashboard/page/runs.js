/** The list of runs: which are shown, in which colour, and how far each is. */

import { element, fill } from "./dom.js";
import { ago, withUnit } from "./numbers.js";
import { change, read } from "./state.js";
import { colour } from "./theme.js";

export const MOST_RUNS = 8;

/** Draws the list anew where it differs, and keeps the keyboard's place in it. */
export function drawRuns(list, count, runs) {
  const shown = read().runs;
  count.textContent = `(${shown.length} of ${runs.length})`;
  const focused = document.activeElement?.dataset?.run;
  fill(list, runs.map((run) => entry(run, shown)));
  if (!runs.length) fill(list, element("li", { class: "quiet" }, "There is no run yet; it appears here when it starts."));
  if (focused !== undefined) list.querySelector(`[data-run="${CSS.escape(focused)}"]`)?.focus();
}

function entry(run, shown) {
  const place = shown.indexOf(run.name);
  const box = element("input", { type: "checkbox", "data-run": run.name, change: (event) => toggle(run.name, event.target.checked) });
  box.checked = place >= 0;
  box.disabled = place < 0 && shown.length >= MOST_RUNS;
  const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
  swatch.style.background = place >= 0 ? colour(place) : "transparent";
  const progress = run.num_steps ? `step ${run.step} of ${run.num_steps}` : `step ${run.step}`;
  const age = run.changed_s ? ago(run.changed_s) : "no record yet";
  const facts = [run.success === null ? null : `success ${withUnit(run.success, "share")}`, age];
  return element("li", {},
    element("label", { class: "run" }, box, swatch,
      element("span", { class: "run-text" },
        element("span", { class: "run-name" }, run.name),
        element("span", { class: "quiet" }, element("span", { class: `state ${run.state}` }, run.state), ` · ${progress}`),
        element("span", { class: "quiet" }, facts.filter(Boolean).join(" · ")),
        element("span", { class: "quiet small" }, [run.command, run.algorithm, run.model].filter(Boolean).join(" · ")))));
}

function toggle(name, isOn) {
  const others = read().runs.filter((run) => run !== name);
  change({ runs: isOn ? [...others, name] : others, step: null, question: null });
}

