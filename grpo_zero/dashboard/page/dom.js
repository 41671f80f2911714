/** Makes elements. Text always goes in as text: nothing here, and nothing elsewhere, reads a string as HTML. */

/**
 * An element with attributes and children.
 * @param {string} tag
 * @param {Object} attributes `class`, `aria-*` and the like; functions are listeners, true is an empty attribute, false and null none.
 * @param {...(Node|string|number|null|Array)} children strings become text nodes.
 */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  fill(node, ...children);
  return node;
}

/** Puts children in the place of those there are. */
export function fill(node, ...children) {
  const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  node.replaceChildren(...kept.map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
}
