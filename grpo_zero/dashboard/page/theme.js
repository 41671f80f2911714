/** Light, dark or as the system has it; and the colours of lines, which have to stand out from both. */

const LIGHT = ["#0b62a4", "#c2410c", "#0f766e", "#7c3aed", "#92600a", "#be185d", "#3f6212", "#475569"];
const DARK = ["#6cb2f7", "#fb9a4b", "#3fd0bd", "#b79bfb", "#e8c33b", "#f588bd", "#a8d84e", "#c3cede"];
const KEY = "grpo-zero-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

/** Whether the page is dark now. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

/** The colour of line or run number `index`. */
export function colour(index) {
  const colours = isDark() ? DARK : LIGHT;
  return colours[index % colours.length];
}

/** A variable of the style sheet, such as `--text`. */
export function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A colour with an opacity: `#rrggbb` as rgba. */
export function faint(hex, opacity) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, ${opacity})`;
}

/** Connects the choice, keeps it in this browser, and calls `redraw` when colours change. */
export function startTheme(select, redraw) {
  const apply = (choice) => {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
  };
  select.value = localStorage.getItem(KEY) ?? "auto";
  if (!select.value) select.value = "auto";
  apply(select.value);
  select.addEventListener("change", () => {
    localStorage.setItem(KEY, select.value);
    apply(select.value);
    redraw();
  });
  system.addEventListener("change", redraw);
}
