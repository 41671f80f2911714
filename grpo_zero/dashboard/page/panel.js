/** One chart with its title, legend and explanation. It asks for its data when it comes into view, and again when there is more. */

import { ask } from "./api.js";
import { element, fill } from "./dom.js";
import { short, withUnit } from "./numbers.js";
import { draw, forget, look } from "./plot.js";
import { change } from "./state.js";

/** A panel on the page. `node` is its element. */
export class Panel {
  constructor(facts) {
    this.facts = facts;
    this.hidden = new Set();
    this.drawn = "";
    this.chart = element("div", { class: "chart", role: "img", "aria-label": facts.title });
    this.legend = element("ul", { class: "legend", "aria-label": `Lines of ${facts.title}` });
    this.unit = element("span", { class: "unit" });
    this.flag = element("span", { class: "flag" });
    this.note = element("p", { class: "quiet note" });
    this.terms = element("dl");
    this.node = element("section", { class: "panel", "data-panel": facts.key, "aria-labelledby": `title-${facts.key}` },
      element("div", { class: "panel-head" }, element("h2", { id: `title-${facts.key}` }, facts.title), this.unit, this.flag),
      this.legend, this.chart, this.note,
      element("details", { class: "explain" }, element("summary", {}, "What this shows"), this.terms));
    this.note.hidden = true;
  }

  /** Brings it up to date, where what is wanted differs from what it shows: runs with their versions, range, steps of the mean. */
  async update(runs, range, mean) {
    const wanted = JSON.stringify([runs.map((run) => [run.name, run.version]), range, mean]);
    if (wanted === this.drawn) return;
    this.drawn = wanted;
    const shown = runs.filter((run) => run.panels.includes(this.facts.key));
    try {
      const found = await Promise.all(shown.map((run) => this.ask(run, range, mean)));
      if (wanted !== this.drawn) return;
      this.data = { runs: shown.map((run) => ({ name: run.name, place: runs.indexOf(run) })), found, range, numRuns: runs.length };
      await this.render();
    } catch (error) {
      this.drawn = "";
      fill(this.note, error.message);
      this.note.hidden = false;
    }
  }

  ask(run, range, mean) {
    return ask("series", { run: run.name, panel: this.facts.key, first: range?.[0], last: range?.[1], mean });
  }

  /** Draws what was last asked for; also after a change of colours or of the legend. */
  async render() {
    if (!this.data) return;
    const { runs, found, range, numRuns } = this.data;
    const isStack = this.facts.style === "stack";
    const first = isStack ? found.slice(0, 1) : found;
    const order = [...new Set(first.flatMap((one) => one.lines.map((line) => line.name)))];
    const lines = first.flatMap((one, at) => one.lines.map((line) => ({
      ...line,
      label: numRuns > 1 && !isStack ? `${line.name} · ${runs[at].name}` : line.name,
      run: runs[at].name,
      hasBand: numRuns === 1 || line.name === order[0],
      look: look(runs[at].place, order.indexOf(line.name), isStack ? 1 : numRuns),
    })));
    const metrics = [...new Map(found.flatMap((one) => one.metrics.map((metric) => [metric.name, metric]))).values()];
    const planned = found.flatMap((one, at) => one.planned_gib === null ? [] : [{
      gib: one.planned_gib, colour: look(runs[at].place, 0, numRuns).colour,
      label: numRuns > 1 ? `planned · ${runs[at].name}` : `planned ${short(one.planned_gib)} GiB`,
    }]);
    this.unit.textContent = metrics[0]?.unit === "share" ? "%" : metrics[0]?.unit ?? "";
    this.drawLegend(order, lines, metrics, isStack ? 1 : numRuns, isStack);
    this.drawFlag(found);
    this.drawTerms(metrics);
    this.note.hidden = !(isStack && runs.length > 1);
    if (!this.note.hidden) fill(this.note, `Of ${runs[0].name} alone: stacks cannot be laid over each other.`);
    this.chart.setAttribute("aria-label", summary(this.facts.title, lines, metrics));
    const visible = lines.filter((line) => !this.hidden.has(line.name));
    await draw(this.chart, { style: this.facts.style, lines: visible, metrics, planned, range });
    this.listen();
  }

  /** Zooming one chart zooms all; a double click shows everything again. */
  listen() {
    if (this.isListening) return;
    this.isListening = true;
    this.chart.on("plotly_relayout", (event) => {
      const first = event["xaxis.range[0]"], last = event["xaxis.range[1]"];
      if (first !== undefined) change({ first: Math.max(0, Math.floor(first)), last: Math.max(0, Math.ceil(last)) });
    });
    this.chart.on("plotly_doubleclick", () => change({ first: null, last: null }));
  }

  /** A button a metric, which hides and shows its lines; beside it the newest value, of several runs each in its colour. */
  drawLegend(order, lines, metrics, numRuns, isStack) {
    fill(this.legend, order.map((name) => {
      const own = lines.filter((line) => line.name === name);
      const unit = metrics.find((metric) => metric.name === own[0].metric)?.unit;
      const swatch = element("span", { class: `swatch ${isStack ? "square" : own[0].look.dash}`, "aria-hidden": "true" });
      swatch.style.color = numRuns > 1 ? "inherit" : own[0].look.colour;
      const values = isStack ? [] : own.map((line) => value(line, unit, numRuns));
      const button = element("button", { type: "button", "aria-pressed": String(!this.hidden.has(name)) },
        swatch, element("span", { class: "legend-name" }, name), values);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
        this.redrawLines();
      });
      return element("li", {}, button);
    }));
  }

  /** As render, but the legend's buttons stay, and with them the keyboard's place. */
  async redrawLines() {
    const keep = this.drawLegend;
    this.drawLegend = () => {};
    await this.render();
    this.drawLegend = keep;
  }

  drawFlag(found) {
    const worrying = found.flatMap((one) => one.lines.filter((line) => {
      const metric = one.metrics.find(({ name }) => name === line.metric);
      return metric && line.last !== null && ((metric.worry_above !== null && line.last > metric.worry_above)
        || (metric.worry_below !== null && line.last < metric.worry_below));
    }).map((line) => line.name));
    this.flag.textContent = worrying.length ? `! check ${[...new Set(worrying)].join(", ")}` : "";
    this.flag.hidden = !worrying.length;
  }

  drawTerms(metrics) {
    fill(this.terms, metrics.flatMap((metric) => [
      element("dt", {}, element("code", {}, metric.name), metric.unit ? ` (${metric.unit})` : ""),
      element("dd", {}, metric.definition, element("span", { class: "healthy" }, "Healthy: ", metric.healthy || "not said.")),
    ]));
  }

  /** Takes it off the page. */
  close() {
    forget(this.chart);
    this.node.remove();
  }
}

/** A line's newest value; among several runs with its colour, and for those who do not see it the run's name. */
function value(line, unit, numRuns) {
  const dot = element("span", { class: "spot", "aria-hidden": "true" });
  dot.style.color = line.look.colour;
  return element("span", { class: "value" }, numRuns > 1 ? [dot, element("span", { class: "unseen" }, `${line.run} `)] : null, withUnit(line.last, unit));
}

/** What someone who does not see the chart is told. */
function summary(title, lines, metrics) {
  const values = lines.map((line) => `${line.label} ${withUnit(line.last, metrics.find((metric) => metric.name === line.metric)?.unit)}`);
  return `${title}; newest values: ${values.join(", ")}`;
}
