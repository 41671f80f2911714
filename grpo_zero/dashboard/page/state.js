/** What is shown, kept in the address, so that it can be reloaded, gone back from and put into a bookmark. */

const COLOURS = ["none", "surprise", "push"];
const listeners = [];

/** view, runs (names), and for the answers step, kind, filter and question; what is not set is null. */
export function read() {
  const found = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^\d+$/.test(found.get(name) ?? "") ? Number(found.get(name)) : null);
  return {
    view: found.get("view") ?? "charts",
    runs: found.getAll("run"),
    step: number("step"),
    kind: found.get("kind") === "eval" ? "eval" : "train",
    filter: found.get("filter") ?? "all",
    question: number("question"),
    first: number("first"),
    last: number("last"),
    mean: number("mean"),
    colour: COLOURS.includes(found.get("colour")) ? found.get("colour") : "none",
  };
}

/** Changes some of it; null takes away. The other values stay. */
export function change(changes) {
  const next = { ...read(), ...changes };
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(next)) {
    if (name === "runs") value.forEach((run) => words.append("run", run));
    else if (value !== null) words.append(name, value);
  }
  if (`#${words}` === location.hash) return;
  history.pushState(null, "", `#${words}`);
  tell();
}

/** Calls `listener` with the state whenever it changes. */
export function onChange(listener) {
  listeners.push(listener);
}

function tell() {
  const state = read();
  listeners.forEach((listener) => listener(state));
}

addEventListener("popstate", tell);
