/** Which of the chosen runs a view of one run is about: the first, and this puts another one first. */

import { element, fill } from "./dom.js";
import { change, read } from "./state.js";

/** A labelled list of the chosen runs; `update` gives it the runs. */
export function runChoice() {
  const select = element("select", { change: (event) => {
    const others = read().runs.filter((name) => name !== event.target.value);
    change({ runs: [event.target.value, ...others], step: null, question: null });
  } });
  const node = element("label", {}, "Run ", select);
  let drawn = "";
  return {
    node,
    update(chosen) {
      const names = chosen.map((run) => run.name);
      const wanted = JSON.stringify(names);
      node.hidden = names.length < 2;
      if (wanted === drawn) return;
      drawn = wanted;
      fill(select, names.map((name) => element("option", { value: name }, name)));
      select.value = names[0] ?? "";
    },
  };
}
