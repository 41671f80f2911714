/** An answer's text with its tokens coloured: how unlikely each was, or its term of the policy-gradient loss. */

import { element, fill } from "./dom.js";
import { short, signed } from "./numbers.js";
import { change, read } from "./state.js";
import { visibleText } from "./visible_text.js";

const WAYS = { none: "nothing", surprise: "log-prob", push: "advantage × −log-prob" };
const LIMITS = [0.1, 0.7, 1.6, 3];
const EXPLAINED = {
  surprise: "A token's colour is its −log-prob when it was sampled, in nats:",
  push: "Advantage × −log-prob, a token's term of the policy-gradient loss. Made likelier",
};
const STEPS = ["0.1 (p 0.9)", "0.7 (p 0.5)", "1.6 (p 0.2)", "3 (p 0.05)"];

/**
 * Nodes for a text; only tokens strong enough for a colour become elements.
 * @param {Array<[number, number]>|null} pieces characters and log-prob of each token; null where they were not recorded.
 */
export function colouredText(text, pieces, advantage) {
  if (!pieces) return visibleText(text);
  const characters = Array.from(text);  // pieces count code points, JavaScript halves of some of them
  const nodes = [];
  let plain = "", begin = 0;
  for (const [count, logprob] of pieces) {
    const piece = characters.slice(begin, begin + count).join("");
    begin += count;
    const names = classes(logprob, advantage);
    if (!names) {
      plain += piece;
      continue;
    }
    nodes.push(...visibleText(plain), element("span", { class: names, title: facts(logprob, advantage) }, visibleText(piece)));
    plain = "";
  }
  nodes.push(...visibleText(plain + characters.slice(begin).join("")));
  return nodes;
}

/** A sign for the token that ended an answer. */
export function stopSign(logprob, advantage) {
  return element("span", { class: `stop ${classes(logprob, advantage)}`, title: facts(logprob, advantage) }, "end");
}

/** A labelled choice of what colours mean, with its key; `update` shows what the address says. */
export function colourChoice() {
  const select = element("select", { change: (event) => change({ colour: event.target.value }) },
    Object.entries(WAYS).map(([value, words]) => element("option", { value }, words)));
  const key = element("p", { class: "quiet token-key" });
  return {
    node: element("label", {}, "Colour tokens by ", select),
    key,
    update() {
      const { colour } = read();
      if (select.value !== colour) select.value = colour;
      if (key.dataset.of === colour) return;
      key.dataset.of = colour;
      key.hidden = colour === "none";
      if (colour === "surprise") fill(key, EXPLAINED.surprise, samples("s"));
      if (colour === "push") fill(key, EXPLAINED.push, samples("up"), " less likely", samples("down"), " (answers of an evaluation have no advantage)");
    },
  };
}

function samples(name) {
  return LIMITS.map((_, at) => [" ", element("span", { class: `${name}${at + 1}` }, `≥ ${name === "s" ? STEPS[at] : LIMITS[at]}`)]);
}

function classes(logprob, advantage) {
  const surprise = level(-logprob);
  const push = level(Math.abs(advantage ?? 0) * -logprob);
  return [surprise && `s${surprise}`, push && `${advantage > 0 ? "up" : "down"}${push}`].filter(Boolean).join(" ");
}

/** 0 for what needs no colour, else 1 to 4. */
function level(size) {
  return LIMITS.filter((limit) => size >= limit).length;
}

function facts(logprob, advantage) {
  const push = advantage === null ? "" : `, advantage × −log-prob ${signed(advantage * -logprob)}`;
  return `log-prob ${signed(logprob)}, probability ${short(Math.exp(logprob))}${push}`;
}
