// A tool call of a transcript as people read it: a command as text, a change of a file as its lines. Pure.

import { short } from "./format.js";

const HEAD = 140;

/**
 * `{head, parts}` of a call's input. `head`: one line. `parts`: `{name, text, form}`; `form` is `diff` where each line
 * begins with `+`, `-` or `@`, else empty. Fields that belong to no command and no change come last, as JSON.
 */
export function describeInput(input) {
  if (typeof input !== "object" || input === null) return { head: short(String(input ?? ""), HEAD), parts: [] };
  const { rest, parts } = change(input) ?? command(input) ?? { rest: input, parts: [] };
  const left = Object.entries(rest);
  if (left.length > 0) parts.push({ name: parts.length > 0 ? "options" : "input", text: JSON.stringify(rest, null, 2), form: "" });
  return { head: short(parts[0]?.head ?? JSON.stringify(input), HEAD), parts };
}

function command({ command: given, ...rest }) {
  const text = Array.isArray(given) ? given.join(" ") : given;
  return typeof text === "string" ? { rest, parts: [{ name: "command", text, form: "", head: text }] } : null;
}

/** Input that names a file and what becomes of it: whole, or in edits, under the names that agents use. */
function change({ path, file_path: filePath, ...more }) {
  const file = path ?? filePath;
  if (typeof file !== "string") return null;
  const { content, edits, old_text: a, new_text: b, oldText: c, newText: d, old_string: e, new_string: f, ...rest } = more;
  const [before, after] = [a ?? c ?? e, b ?? d ?? f];
  const list = Array.isArray(edits) ? edits : typeof after === "string" ? [{ old_text: before ?? "", new_text: after }] : null;
  const lines = typeof content === "string" ? marked(content, "+") : list?.flatMap(editLines);
  if (lines === undefined || lines.includes(null)) return null;
  return { rest, parts: [{ name: "file", text: file, form: "", head: file }, { name: "change", text: lines.join("\n"), form: "diff" }] };
}

function editLines(edit, index, all) {
  const before = edit?.old_text ?? edit?.oldText ?? edit?.old_string;
  const after = edit?.new_text ?? edit?.newText ?? edit?.new_string;
  if (typeof before !== "string" || typeof after !== "string") return [null];
  const place = all.length > 1 ? [`@ change ${index + 1} of ${all.length}${edit.replace_all ? ", everywhere" : ""}`] : [];
  return [...place, ...marked(before, "-"), ...marked(after, "+")];
}

const marked = (text, mark) => (text === "" ? [] : (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n").map((line) => mark + line));
