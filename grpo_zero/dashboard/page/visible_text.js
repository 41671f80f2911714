/** A model's text as it is: nothing in it is markup, and marks that would hide or turn around other text are spelled out. */

import { element } from "./dom.js";

/** Controls but for tab and line feed, marks that change the direction, invisible characters, lone halves of surrogate pairs. */
const UNSEEN = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u061C\u200B-\u200F\u2028-\u202E\u2060-\u206F\uFEFF\uFFF9-\uFFFB]|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g;

/** Nodes for a text: text nodes, and a small box such as U+202E for each mark that cannot be seen. */
export function visibleText(text) {
  const nodes = [];
  let end = 0;
  for (const { 0: mark, index } of text.matchAll(UNSEEN)) {
    if (index > end) nodes.push(text.slice(end, index));
    nodes.push(element("span", { class: "mark" }, code(mark)));
    end = index + mark.length;
  }
  nodes.push(text.slice(end));
  return nodes;
}

/** The same in one string, for places that hold no elements. */
export function visibleString(text) {
  return text.replace(UNSEEN, code);
}

function code(mark) {
  return `U+${mark.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}
