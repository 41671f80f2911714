/** The view of one held-out question: what the model answered to it in every evaluation. */

import { answerGrid, marks } from "./answer_card.js";
import { ask } from "./api.js";
import { element, fill } from "./dom.js";
import { runChoice } from "./run_choice.js";
import { change, read } from "./state.js";
import { colourChoice } from "./token_colours.js";
import { visibleString, visibleText } from "./visible_text.js";

const MOST_LISTED = 200;

let questions = [];
let loaded = "";
let drawn = "";

const runSelect = runChoice();
const colours = colourChoice();
const find = element("input", { type: "search", id: "find", placeholder: "words of the question", input: drawList });
const bar = element("div", { class: "bar" }, runSelect.node, element("label", { for: "find" }, "Find"), find, colours.node);
const said = element("p", { class: "quiet", role: "status" });
const list = element("ol", { class: "questions", "aria-label": "Held-out questions", tabindex: "0" });
const history = element("div", { class: "history" });
const view = element("div", {}, bar, colours.key, said, element("div", { class: "follow" }, list, history));

/** Puts the view on the page. */
export function openQuestion(main) {
  fill(main, view);
}

/** Lists the questions of the first of these runs, and follows the one of the address. */
export async function showQuestion(chosen) {
  runSelect.update(chosen);
  colours.update();
  const run = chosen[0];
  if (!run) {
    said.textContent = "Choose a run.";
    questions = [];
    loaded = drawn = "";
    return fill(list), fill(history);
  }
  try {
    await load(run);
  } catch (error) {
    said.textContent = error.message;
  }
}

async function load(run) {
  // Another evaluation is there when held-out success has a new step; a version says so too often, and costs little.
  const key = `${run.name} ${run.version}`;
  if (key !== loaded) {
    const found = await ask("questions", { run: run.name });
    const isSame = JSON.stringify(found.questions) === JSON.stringify(questions);
    loaded = isSame ? key : "";  // the numbers are written before the answers: until two replies are the same
    questions = found.questions;
    said.textContent = questions.length ? `${questions.length} held-out questions; marks are those of the evaluation after step ${found.step}` : "There is no evaluation yet.";
    if (!isSame) drawList();
    drawn = isSame ? drawn : "";
  }
  const { question } = read();
  for (const button of list.querySelectorAll("button")) button.toggleAttribute("aria-current", Number(button.dataset.question) === question);
  const wanted = question === null ? "" : `${run.name} ${question}`;
  if (wanted === drawn) return;
  if (question === null) return fill(history);
  const found = await ask("follow", { run: run.name, index: question });
  drawn = wanted;
  drawHistory(run.name, found);
}

function drawList() {
  const words = find.value.toLowerCase();
  const kept = questions.filter((one) => one.question.toLowerCase().includes(words));
  const current = read().question;
  fill(list, kept.slice(0, MOST_LISTED).map((one) => {
    const button = element("button", { type: "button", "data-question": one.index, click: () => change({ question: one.index }) },
      element("span", { class: "question", dir: "auto" }, visibleString(one.question).slice(0, 200)), marks(one.marks));
    button.toggleAttribute("aria-current", one.index === current);
    return element("li", {}, button);
  }), kept.length > MOST_LISTED ? element("li", { class: "quiet" }, `and ${kept.length - MOST_LISTED} more: type words to find them`) : null);
}

function drawHistory(run, found) {
  const counts = found.history.map(({ answers }) => answers.filter((answer) => answer.mark === "right").length);
  fill(history,
    element("h2", { dir: "auto" }, visibleText(found.question)),
    found.history.toReversed().map(({ step, answers }, at) => {
      const body = element("div", { class: "group-body" });
      const right = counts[counts.length - 1 - at];
      const box = element("details", { class: "group", toggle: () => {
        if (box.open && !body.firstChild) fill(body, answerGrid(run, answers));
      } },
        element("summary", {}, element("span", { class: "question" }, `after step ${step}`), marks(answers.map((answer) => answer.mark)),
          element("span", { class: "quiet" }, `${right} of ${answers.length} right`)),
        body);
      box.open = at === 0;
      return box;
    }));
}
