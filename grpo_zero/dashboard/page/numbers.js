/** Numbers as people read them. */

/** A metric's value in its unit; shares in per cent. */
export function withUnit(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${short(100 * value)} %`;
  return short(value);
}

/** Three or so significant digits. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

/** With its sign, as advantages are read. */
export function signed(value) {
  if (value === null || value === undefined) return "–";
  return `${value > 0 ? "+" : value < 0 ? "−" : ""}${short(Math.abs(value))}`;
}

/** How long ago a moment was, given in seconds since 1970. */
export function ago(seconds) {
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  if (passed < 90) return `${Math.round(passed)} s ago`;
  if (passed < 5400) return `${Math.round(passed / 60)} min ago`;
  if (passed < 129600) return `${Math.round(passed / 3600)} h ago`;
  return `${Math.round(passed / 86400)} days ago`;
}
