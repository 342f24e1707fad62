// What an event says, in one line. Pure.

import { DISPLAYS } from "./event_displays.js";
import { short } from "./format.js";

const LENGTH = 220;
const FIELD = /\{([\w.]+)(?:=(\w+))?(?:\?([^}]*))?\}/g;

/** The command or the file at the beginning of a preview, which is JSON and may be cut. */
const FIRST = /^\{"(?:command|path|file_path)":\s?"((?:[^"\\\u0000-\u001f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*)/;

function called(call) {
  const preview = call?.input_preview ?? "";
  const first = FIRST.exec(preview)?.[1];
  return `${call?.name ?? "?"} ${first === undefined ? preview : JSON.parse(`"${first}"`)}`;
}

/** The display of a type of event; undefined where the table of the supervisor does not list it. */
export const displayOf = (type) => DISPLAYS[type];

/** The line for an event's data; of what has no line of its own, its fields. */
export function summarize(type, data) {
  const display = DISPLAYS[type];
  if (display !== undefined && display.line.length > 0) {
    if (type === "run:accepted" && data.text) return short(data.text, LENGTH); // lane and priority are for a terminal
    return short([...display.line, display.detail].map((part) => fill(part, data)).filter(Boolean).join(display.separator), LENGTH);
  }
  if (data.call !== undefined) return short([called(data.call), data.error].filter(Boolean).join(" · "), LENGTH);
  const fields = Object.entries(data).filter(([, value]) => value !== null && value !== "");
  return short(fields.map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(" · "), LENGTH);
}

/** How the agent goes on with a conversation, as the event `agent_resumed` says it; empty where that is not known. */
export const resumption = (strategy) => (strategy ? summarize("agent_resumed", { strategy }) : "");

/** A part of a line with its fields; empty where one of them has no value. */
function fill(part, data) {
  let isWhole = true;
  const text = part.replace(FIELD, (_, path, wanted, words) => {
    const value = path.split(".").reduce((found, name) => found?.[name], data);
    isWhole &&= !((value ?? "") === "" || (words && !value) || (wanted && value !== wanted));
    return words ?? (Array.isArray(value) ? value.length : value);
  });
  return isWhole ? text : "";
}
