// Small texts for people: spans of time, sizes, counts. A dash where something is not known.

const NONE = "–";

/** Seconds: 850 µs, 12 ms, 3.4 s, 2 m 5 s, 3 h 4 m, 2 d 1 h. */
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return NONE;
  if (seconds < 0.001) return `${Math.max(0, Math.round(seconds * 1e6))} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} m`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** Whole units only, for what need not be exact: now, 12 s, 5 m, 3 h, 2 d. */
export function age(seconds) {
  if (!(seconds >= 1)) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** Bytes: 45 MiB. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return NONE;
  for (const [unit, factor] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (bytes >= factor) return `${(bytes / factor).toFixed(bytes < 10 * factor ? 1 : 0)} ${unit}`;
  }
  return `${bytes} B`;
}

/** A share of a whole: 0.25 is 25%. */
export const percent = (share) => (share === null || share === undefined ? NONE : `${Math.round(100 * share)}%`);

/** A number that may be large: 950, 12.3 k, 200 k, 4.5 M. */
export function count(value) {
  if (value < 10_000) return String(Math.round(value));
  const [unit, letter] = value < 999_950 ? [1e3, "k"] : [1e6, "M"];
  return `${(value / unit).toFixed(1).replace(".0", "")} ${letter}`;
}

/** How much of an agent's context is used: `1.8 k of 200 k tokens`; empty where it does not say. */
export const context = ({ context: known }) => (known ? `${count(known.used)} of ${count(known.size)} tokens` : "");

/** A rate that may be small: 0, 0.4, 12, 2.1 k. */
export const rate = (value) => (value > 0 && value < 10 ? value.toFixed(1) : count(value));

/** `one session`, `3 sessions`. */
export const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

/** The clock at a Unix time in seconds: 14:03:07. */
export function clock(unix) {
  const date = new Date(unix * 1000);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** The beginning of a text, on one line. */
export function short(text, length) {
  const line = String(text).slice(0, length + 1).replace(/\s+/g, " ");
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}
