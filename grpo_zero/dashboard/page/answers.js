/** The view of answers: any step's groups, each question with all its answers side by side. */

import { answerGrid, marks } from "./answer_card.js";
import { ask } from "./api.js";
import { element, fill } from "./dom.js";
import { short } from "./numbers.js";
import { runChoice } from "./run_choice.js";
import { change, read } from "./state.js";
import { colourChoice } from "./token_colours.js";
import { visibleString, visibleText } from "./visible_text.js";

const FILTERS = { all: "all answers", right: "right answers", wrong: "wrong answers", truncated: "truncated answers", zero: "zero-variance groups" };
const FEW_GROUPS = 100;

let run = null;
let steps = { train: [], eval: [] };
let shown = { key: "", step: null, groups: [] };

const runSelect = runChoice();
const colours = colourChoice();
const kindSelect = choice("Answers of", { train: "training", eval: "evaluation" }, (kind) => change({ kind, step: null }));
const filterSelect = choice("Show", FILTERS, (filter) => change({ filter }));
const stepBox = element("input", { type: "number", min: "0", inputmode: "numeric", size: "7", id: "step", change: (event) => go(Number(event.target.value)) });
const earlier = element("button", { type: "button", "aria-label": "Earlier step", click: () => move(-1) }, "◀");
const later = element("button", { type: "button", "aria-label": "Later step", click: () => move(1) }, "▶");
const newest = element("button", { type: "button", click: () => go(available().at(-1)) }, "Newest");
const bar = element("div", { class: "bar" }, runSelect.node, kindSelect.node,
  element("label", { for: "step" }, "Step"), earlier, stepBox, later, newest, filterSelect.node, colours.node);
const said = element("p", { class: "quiet", role: "status" });
const list = element("div", { class: "groups" });
const view = element("div", {}, bar, colours.key, said, list);

/** Puts the view on the page. */
export function openAnswers(main) {
  fill(main, view);
}

/** Shows the answers of the first of these runs, at the step of the address or else the newest. */
export async function showAnswers(chosen) {
  runSelect.update(chosen);
  colours.update();
  const state = read();
  kindSelect.select.value = state.kind;
  filterSelect.select.value = state.filter in FILTERS ? state.filter : "all";
  run = chosen[0] ?? null;
  if (!run) return tell("Choose a run.");
  try {
    await load(state);
  } catch (error) {
    tell(error.message);
  }
}

async function load(state) {
  const name = run.name;
  const now = await ask("steps", { run: name });
  if (run?.name !== name) return;
  steps = now;
  const step = nearest(state.step ?? (shown.key.startsWith(`${name} ${state.kind} `) ? shown.step : available().at(-1)));
  if (step === undefined) return tell("There are no answers yet.");
  const isOld = step !== available().at(-1);
  newest.disabled = !isOld;
  fill(newest, isOld ? `Newest: ${available().at(-1)}` : "Newest");
  earlier.disabled = step <= available()[0];
  later.disabled = !isOld;
  if (document.activeElement !== stepBox) stepBox.value = step;
  const key = `${name} ${state.kind} ${step}`;
  if (key !== shown.key || !shown.isWhole) {
    // A step's numbers are written before its answers, so they are asked for until two replies are the same.
    const { groups } = await ask("groups", { run: name, kind: state.kind, step });
    if (!groups.length) return tell(`The answers of step ${step} are not written yet.`);
    const isSame = key === shown.key && JSON.stringify(groups) === JSON.stringify(shown.groups);
    if (isSame) shown.isWhole = true;
    else shown = { key, step, kind: state.kind, groups, filter: null, isWhole: false };
  }
  if (shown.filter !== filterSelect.select.value) {
    shown.filter = filterSelect.select.value;
    drawGroups();
  }
}

function drawGroups() {
  const { groups, filter, step } = shown;
  const kept = groups.filter((group) => filter === "all" || (filter === "zero" ? group.zero_variance : group.marks.includes(filter)));
  said.textContent = `Step ${step}: ${kept.length} of ${groups.length} groups${filter === "all" ? "" : ` with ${FILTERS[filter]}`}`;
  const nodes = kept.map((group) => groupBox(group, filter));
  const rest = nodes.splice(FEW_GROUPS);
  fill(list, nodes, rest.length ? moreGroups(rest) : null);
  if (nodes.length) nodes[0].open = true;
}

/** Hundreds of groups are put on the page when they are asked for. */
function moreGroups(rest) {
  const button = element("button", { type: "button", class: "more" }, `Show ${rest.length} more groups`);
  button.addEventListener("click", () => button.replaceWith(...rest));
  return button;
}

function groupBox(group, filter) {
  const { kind, step } = shown, name = run.name;
  const known = group.rewards.filter((reward) => reward !== null);
  const mean = known.length ? known.reduce((sum, reward) => sum + reward, 0) / known.length : null;
  const body = element("div", { class: "group-body" });
  const box = element("details", { class: "group", toggle: open },
    element("summary", {},
      element("span", { class: "question", dir: "auto" }, visibleString(group.question).slice(0, 300)),
      marks(group.marks),
      element("span", { class: "quiet" }, `mean reward ${short(mean)}`),
      group.zero_variance ? element("span", { class: "badge" }, "zero variance") : null),
    body);
  let isLoaded = false;
  async function open() {
    if (!box.open || isLoaded) return;
    isLoaded = true;
    try {
      const found = await ask("group", { run: name, kind, step, index: group.index });
      const answers = found.answers.filter((answer) => filter === "all" || filter === "zero" || answer.mark === filter);
      fill(body,
        kind === "eval" ? element("button", { type: "button", click: () => change({ view: "question", question: group.index }) }, "Follow this question through training") : null,
        element("details", { class: "prompt" }, element("summary", {}, "The prompt as the model read it"), element("pre", { tabindex: "0", role: "region", "aria-label": "Prompt" }, visibleText(found.prompt))),
        answerGrid(name, answers));
    } catch (error) {
      isLoaded = false;
      fill(body, error.message);
    }
  }
  return box;
}

function available() {
  return steps[read().kind];
}

/** The step among those there are that is closest to the one asked for. */
function nearest(step) {
  return available().reduce((best, one) => (best === undefined || Math.abs(one - step) < Math.abs(best - step) ? one : best), undefined);
}

function go(step) {
  if (Number.isFinite(step)) change({ step: nearest(step) ?? null });
}

function move(by) {
  const at = available().indexOf(shown.step);
  const next = available()[at + by];
  if (next !== undefined) change({ step: next });
}

function tell(sentence) {
  said.textContent = sentence;
  shown = { key: "", step: null, groups: [] };
  fill(list);
}

function choice(label, options, changed) {
  const select = element("select", { change: (event) => changed(event.target.value) },
    Object.entries(options).map(([value, text]) => element("option", { value }, text)));
  return { select, node: element("label", {}, `${label} `, select) };
}
