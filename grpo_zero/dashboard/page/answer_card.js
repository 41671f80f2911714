/** One answer with its verdict, and rows of marks for many. */

import { ask } from "./api.js";
import { element, fill } from "./dom.js";
import { short, signed } from "./numbers.js";
import { colouredText, stopSign } from "./token_colours.js";
import { visibleText } from "./visible_text.js";

const SIGNS = { right: "✓", wrong: "✗", truncated: "✂" };
const MORE_CHARACTERS = 50000;

/** The answers of a group side by side. */
export function answerGrid(run, answers) {
  return element("div", { class: "answers" }, answers.map((answer, at) => answerCard(run, answer, at + 1)));
}

/** Signs of a group's answers; each says in words what it means. */
export function marks(list) {
  const counts = Object.keys(SIGNS).map((mark) => [mark, list.filter((one) => one === mark).length]).filter(([, count]) => count);
  const words = counts.map(([mark, count]) => `${count} ${mark}`).join(", ");
  return element("span", { class: "marks", role: "img", "aria-label": words },
    list.slice(0, 32).map((mark) => element("span", { class: mark }, SIGNS[mark])), list.length > 32 ? "…" : null);
}

function answerCard(run, answer, number) {
  const length = answer.length === null ? `${short(answer.characters)} characters` : `${short(answer.length)} tokens`;
  const facts = [
    ["reward", short(answer.reward)], ["advantage", signed(answer.advantage)], ["length", length], ["ended by", answer.is_finished ? "itself" : "length limit"],
  ];
  const parts = Object.entries(answer.parts).map(([name, value]) => `${name} ${short(value)}`).join(" · ");
  const text = element("pre", { tabindex: "0", role: "region", "aria-label": `Text of answer ${number}` }, colouredText(answer.response, answer.pieces, answer.advantage));
  const isWhole = answer.characters === Array.from(answer.response).length;
  if (isWhole) appendStop(text, answer);
  return element("article", { class: `answer ${answer.mark}` },
    element("h3", {}, element("span", { class: answer.mark, "aria-hidden": "true" }, SIGNS[answer.mark]), ` ${number} ${answer.mark}`),
    element("dl", { class: "facts" }, facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
    element("p", { class: "reason" }, visibleText(answer.reason), parts ? element("span", { class: "quiet" }, visibleText(` (${parts})`)) : null),
    text,
    isWhole ? null : moreButton(run, answer, text));
}

function appendStop(text, answer) {
  if (answer.stop_logprob !== null) text.append(stopSign(answer.stop_logprob, answer.advantage));
}

/** Adds the text that did not come with the group, a piece at a time, so that a megabyte does not come unasked. */
function moreButton(run, answer, text) {
  let end = Array.from(answer.response).length;
  const words = () => `Show more: ${end.toLocaleString("en")} of ${answer.characters.toLocaleString("en")} characters are shown`;
  const button = element("button", { type: "button", class: "more" }, words());
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const more = await ask("text", { run, at: answer.at, start: end, count: MORE_CHARACTERS });
      text.append(...colouredText(more.text, more.pieces, answer.advantage));
      end += MORE_CHARACTERS;
      if (end >= answer.characters) appendStop(text, answer);
      fill(button, words());
    } catch (error) {
      fill(button, error.message);
    }
    button.disabled = false;
    if (end >= answer.characters) button.remove();
  });
  return button;
}
