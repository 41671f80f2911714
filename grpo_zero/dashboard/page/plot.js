/** Draws one chart with Plotly: lines, intervals, a stack; the worrying region shaded. */

import { colour, faint, variable } from "./theme.js";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const FEW_POINTS = 40;
let library = null;

/** The chart library, loaded once the page stands. */
export function loadLibrary() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "plotly.min.js";
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => reject(new Error("The chart library did not load."));
    document.head.append(script);
  });
  return library;
}

/** Colour and dash of a line: of several runs each has a colour and each metric a dash, of one run each metric a colour. */
export function look(runIndex, lineIndex, numRuns) {
  if (numRuns > 1) return { colour: colour(runIndex), dash: DASHES[lineIndex % DASHES.length] };
  return { colour: colour(lineIndex), dash: "solid" };
}

/**
 * Draws or redraws.
 * @param {HTMLElement} node
 * @param {Object} chart `style`, `lines` ([{name, metric, steps, values, low, high, look}]), `metrics`, `planned_gib`, `range`.
 */
export async function draw(node, chart) {
  const Plotly = await loadLibrary();
  const unit = chart.metrics[0]?.unit ?? "";
  const [low, high] = extent(chart);
  const isTouch = matchMedia("(pointer: coarse)").matches;
  await Plotly.react(
    node,
    chart.style === "stack" ? chart.lines.map((line) => stacked(line)) : chart.lines.flatMap((line) => traces(line, unit)),
    {
      margin: { l: 52, r: 10, t: 8, b: 30 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: variable("--font"), size: 12, color: variable("--quiet") },
      showlegend: false,
      hovermode: "x unified",
      hoverlabel: { bgcolor: variable("--panel"), bordercolor: variable("--line"), font: { color: variable("--text"), size: 12 } },
      dragmode: isTouch ? false : "zoom",
      xaxis: { ...axis(), range: chart.range ?? undefined, autorange: !chart.range, fixedrange: isTouch, hoverformat: "d", tickformat: ",d", unifiedhovertitle: { text: "step %{x:,d}" } },
      yaxis: { ...axis(), range: [low, high], fixedrange: true, tickformat: ticks(unit, high), nticks: 6 },
      shapes: [...shades(chart.metrics, low, high), ...levels(chart)],
      annotations: notes(chart, low, high),
      uirevision: "keep",
    },
    { displayModeBar: false, responsive: true, doubleClick: false },
  );
}

/** How the numbers of an axis are written: few digits, none cut off. */
function ticks(unit, high) {
  if (unit === "share") return ".3~p";
  return Math.abs(high) >= 1000 ? ".3~s" : ".3~g";
}

/** Takes a chart's memory back. */
export function forget(node) {
  globalThis.Plotly?.purge(node);
}

function axis() {
  return { gridcolor: variable("--grid"), zerolinecolor: variable("--grid"), linecolor: variable("--line"), automargin: false };
}

/** Plotly reads a few tags in names; ours are text. */
function plain(name) {
  return name.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function traces(line, unit) {
  const hover = `%{y:${unit === "share" ? ".1%" : ".4~g"}}`;
  const band = line.low && line.hasBand && {
    x: [...line.steps, ...line.steps.toReversed()],
    y: [...line.high, ...line.low.toReversed()],
    fill: "toself", fillcolor: faint(line.look.colour, 0.16), line: { width: 0 }, mode: "lines", hoverinfo: "skip",
  };
  const isSparse = line.steps.length <= FEW_POINTS;
  return [
    ...(band ? [band] : []),
    {
      x: line.steps, y: line.values, name: plain(line.label), mode: isSparse ? "lines+markers" : "lines", hovertemplate: hover,
      line: { color: line.look.colour, width: isSparse ? 2 : 1.4, dash: line.look.dash }, marker: { size: 4 },
      connectgaps: true,
    },
  ];
}

function stacked(line) {
  return {
    x: line.steps, y: line.values, name: plain(line.label), mode: "lines", stackgroup: "all", hovertemplate: "%{y:.3~g} s",
    line: { color: line.look.colour, width: 0.8 }, fillcolor: faint(line.look.colour, 0.55),
  };
}

/** The least and greatest value to show, with the planned level in it, from 0 where that does not flatten the lines. */
function extent(chart) {
  let low = Infinity, high = -Infinity;
  const take = (value) => {
    if (value !== null && value !== undefined) { low = Math.min(low, value); high = Math.max(high, value); }
  };
  if (chart.style === "stack") {
    const sums = new Map();
    for (const line of chart.lines) line.steps.forEach((step, at) => sums.set(step, (sums.get(step) ?? 0) + (line.values[at] ?? 0)));
    sums.forEach(take);
    take(0);
  } else {
    for (const line of chart.lines) for (const values of [line.values, line.low ?? [], line.high ?? []]) values.forEach(take);
  }
  chart.planned.forEach(({ gib }) => take(gib));
  if (low > high) return [0, 1];
  if (low >= 0 && (low < 0.7 * high || low === high)) low = 0;
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low === 0 ? 0 : low - room, high + room];
}

function shades(metrics, low, high) {
  const shape = (y0, y1) => ({ type: "rect", xref: "paper", x0: 0, x1: 1, yref: "y", y0, y1, fillcolor: variable("--worry-fill"), line: { width: 0 }, layer: "below" });
  return limits(metrics).filter(({ value }) => value > low && value < high).flatMap(({ value, isAbove }) => [
    isAbove ? shape(value, high) : shape(low, value),
    { type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: value, y1: value, line: { color: variable("--worry"), width: 1, dash: "dot" } },
  ]);
}

/** Thresholds of the chart's metrics, each once. */
export function limits(metrics) {
  const found = new Map();
  for (const metric of metrics) {
    for (const [value, isAbove] of [[metric.worry_above, true], [metric.worry_below, false]]) {
      if (value !== null && !found.has(`${value}${isAbove}`)) found.set(`${value}${isAbove}`, { value, isAbove, name: metric.name });
    }
  }
  return [...found.values()];
}

function levels(chart) {
  return chart.planned.map(({ gib, colour: shown }) => ({
    type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: gib, y1: gib, line: { color: shown, width: 1.5, dash: "longdash" },
  }));
}

function notes(chart, low, high) {
  const note = (y, text, shown, yanchor) => ({ xref: "paper", x: 1, xanchor: "right", yref: "y", y, yanchor, text: plain(text), showarrow: false, bgcolor: variable("--note"), borderpad: 1, font: { size: 11, color: shown } });
  return [
    ...limits(chart.metrics).filter(({ value }) => value > low && value < high)
      .map(({ value, isAbove, name }) => note(value, `worry: ${name} ${isAbove ? "above" : "below"} ${value}`, variable("--worry"), isAbove ? "bottom" : "top")),
    ...chart.planned.map(({ gib, label }) => note(gib, label, variable("--quiet"), "bottom")),
  ];
}
