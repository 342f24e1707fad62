// Messages of a transcript as elements: what people and agents said, calls of tools with what came of them.

import { describeInput } from "./call_text.js";
import { diffLines, partElement } from "./calls.js";
import { h, setAttribute } from "./dom.js";
import { short } from "./format.js";
import { markdown } from "./markdown.js";
import { resumption } from "./summary.js";

const MOST = 20_000; // characters of one text

/** Who says what a person has sent into a running turn. */
export const JOINED = "You, into the running turn";

/**
 * One message, of the bundled agent's shape or pi's: `content` is a text or a list of parts `{type, ...}`. A message
 * that holds nothing to show has no elements.
 */
export function messageElements({ role, content, origin, strategy }) {
  const parts = typeof content === "string" ? [{ type: "text", text: content }] : Array.isArray(content) ? content : [];
  if (role === "toolResult") return [result(parts.map((part) => part.text ?? "").join("\n"), false)];
  const resumed = resumption(strategy);
  const said = parts.map((part) => element(part, role, origin));
  return [resumed ? h("p", { class: "said resumed", text: resumed }) : null, ...said].filter((each) => each !== null);
}

/** A message; `who`: user, as it was written, or assistant, whose Markdown is read; `by`: its sender's name as shown. */
export function bubble(who, text, by = who === "user" ? "You" : "Agent") {
  const words = who === "user" ? whole(h("div", { class: "text" }), text) : whole(h("div", { class: "text markdown" }), text, (all) => markdown(all));
  return h("div", { class: `said ${who}` }, h("span", { class: "by", text: by }), words);
}

/** The texts of a message. */
export function textsOf({ content }) {
  if (typeof content === "string") return [content];
  return Array.isArray(content) ? content.filter(({ type }) => type === "text").map(({ text: said }) => said) : [];
}

/** What a person has begun a turn with; null where it is something else, or more than a text. */
export function askedIn({ role, content, origin }) {
  if (role !== "user" || origin) return null;
  if (typeof content === "string") return content || null;
  const isText = Array.isArray(content) && content.length === 1 && content[0].type === "text";
  return isText ? content[0].text : null;
}

function element(part, role, origin) {
  switch (part.type) {
    case "text":
      return part.text ? text(part.text, role, origin) : null;
    case "thinking":
      return fold("thought", "Thought", part.thinking ?? part.text ?? "");
    case "tool_use":
    case "toolCall":
      return call(part.name, part.input ?? part.arguments ?? {});
    case "tool_result":
      return result(textOf(part.content), part.content?.ok === false || part.is_error === true);
    case "image":
      return h("p", { class: "hint", text: "(an image)" });
    default:
      return null;
  }
}

function text(said, role, origin) {
  if (role !== "user" || origin === "summary") return bubble("assistant", said);
  return bubble("user", said, origin === "steer" ? JOINED : "You");
}

function result(text, failed) {
  return fold(failed ? "result failed" : "result", short(text.trimStart(), 160) || "(nothing)", text);
}

function fold(kind, head, text) {
  return h("details", { class: `fold ${kind}` }, h("summary", { text: short(head, 160) }), whole(h("pre", { tabindex: "0" }), text));
}

/** A call, folded: its command as text, its change of a file line by line. */
function call(name, input) {
  const { head, parts } = describeInput(input);
  const shown = parts.map(({ name: title, text, form }) => {
    const part = partElement(title);
    setAttribute(part.lastElementChild, "tabindex", "0");
    if (form !== "diff" || text.length > MOST) whole(part.lastElementChild, text);
    else part.lastElementChild.append(...diffLines(text.split("\n")));
    return part;
  });
  return h("details", { class: "fold call" }, h("summary", { text: short(`${name}  ${head}`, 160) }), h("div", { class: "call-parts" }, ...shown));
}

function textOf(content) {
  const value = content?.data ?? (content?.error ? [content.error, content.note && `Note: ${content.note}`].filter(Boolean).join("\n") : content);
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map((part) => part.text ?? "").join("\n");
  return JSON.stringify(value ?? "", null, 2);
}

/** Put a text into an element; of a long one the beginning, and a button that shows all of it. `shape`: its elements. */
function whole(element, text, shape = (all) => [all]) {
  element.replaceChildren(...shape(text.slice(0, MOST)));
  if (text.length > MOST) {
    const show = () => element.replaceChildren(...shape(text));
    element.append(h("button", { type: "button", class: "button small rest", text: `Show ${(text.length - MOST).toLocaleString("en")} more characters`, on: { click: show } }));
  }
  return element;
}
