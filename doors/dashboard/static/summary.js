// What an event says, in one line. Pure.

import { short } from "./format.js";

const LENGTH = 220;

const called = (call) => `${call?.name ?? "?"} ${call?.input_preview ?? ""}`;
const told = (data) => data.delta ?? "";

const LINES = {
  text_chunk: told,
  think_chunk: told,
  text_snapshot: (data) => data.text ?? "",
  think_snapshot: (data) => data.text ?? "",
  "run:accepted": (data) => `lane ${data.lane}, priority ${data.priority}`,
  "run:start": (data) => `turn ${data.turn} on ${data.worker}`,
  done: (data) => [data.reason, data.error?.message ?? data.text].filter(Boolean).join(" · "),
  "tool:error": (data) => `${called(data.call)} · ${data.error ?? ""}`,
  permission_decided: (data) => [`${data.decision} ${data.call_id}`, data.by && `by ${data.by}`, data.note].filter(Boolean).join(" · "),
  state_changed: (data) => `${data.from} → ${data.to} · ${data.reason}`,
  error: (data) => `${data.severity ?? "error"} in ${data.phase ?? "?"} · ${data.message}`,
  token_usage: (data) => `${data.input_tokens ?? 0} in, ${data.output_tokens ?? 0} out`,
  worker_exited: (data) => [data.worker, data.cause, data.reason].filter(Boolean).join(" · "),
};

/** The line for an event's data; of what has no line of its own, its fields. */
export function summarize(type, data) {
  const line = LINES[type];
  if (line !== undefined) return short(line(data), LENGTH);
  if (data.call !== undefined) return short(called(data.call), LENGTH);
  const fields = Object.entries(data).filter(([, value]) => value !== null && value !== "");
  return short(fields.map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(" · "), LENGTH);
}
