/** What the doctor says of the runs shown: a box a run above the charts, asked for again as the run goes on, not too often. */

import { ask } from "./api.js";
import { element, fill } from "./dom.js";

const INTERVAL_MS = 10000;
/** The charts come first. */
const FIRST_MS = 1500;
const boxes = new Map();

export const findings = element("div", { class: "findings-list" });

/** Shows a box for each of these runs. */
export function showFindings(runs) {
  for (const name of boxes.keys()) if (!runs.some((run) => run.name === name)) boxes.delete(name);
  for (const run of runs) {
    if (!boxes.has(run.name)) boxes.set(run.name, newBox(run));
    refresh(boxes.get(run.name), run, runs.length > 1);
  }
  const nodes = runs.map((run) => boxes.get(run.name).node);
  if (nodes.length !== findings.children.length || nodes.some((node, at) => findings.children[at] !== node)) {
    findings.replaceChildren(...nodes);
  }
}

/** There from the start, so that charts do not move when the doctor has spoken. */
function newBox(run) {
  const summary = element("summary", {}, "Doctor: reading the run…");
  const body = element("div", { class: "findings-body" });
  return { node: element("details", { class: "panel findings", hidden: run.command === "sft" }, summary, body), summary, body, version: null, asked: performance.now() - INTERVAL_MS + FIRST_MS };
}

async function refresh(box, run, isNamed) {
  if (box.version === run.version || performance.now() - box.asked < INTERVAL_MS) return;
  box.asked = performance.now();
  const version = run.version;
  try {
    const found = await ask("findings", { run: run.name });
    box.version = version;
    box.node.hidden = found.closing === null;
    fill(box.summary, isNamed ? `Doctor on ${run.name}: ` : "Doctor: ", found.closing);
    fill(box.body, found.findings.map(finding));
  } catch {
    box.version = null; // the server is away, which the page's head says; asked again later
  }
}

function finding(found) {
  return element("section", { class: `finding ${found.severity}` },
    element("h3", {}, element("span", { class: "severity" }, found.severity), " ", found.title),
    element("p", {}, found.diagnosis),
    list("seen", found.evidence), list("try", found.advice),
    element("p", { class: "quiet" }, "more in ", element("code", {}, found.link)));
}

function list(label, texts) {
  return texts.length ? element("div", { class: "finding-list" }, element("span", { class: "quiet" }, label),
    element("ul", {}, texts.map((text) => element("li", {}, text)))) : null;
}
