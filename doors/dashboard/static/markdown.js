// Markdown of an answer as elements: headings, lists, quotes, code, tables, links. A limited set, and all text stays text.

import { toast } from "./announcer.js";
import { h } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ROW = /^\s*\|.*\|\s*$/;
const DIVIDER = /^\s*\|(?:\s*:?-+:?\s*\|)+\s*$/;
const SAFE = /^(?:https?|mailto):/i;
const MOST_DEPTH = 8;

/** An answer that grows: only its last two blocks are made again for each piece, the ones before them stay. */
export class MarkdownText {
  #root;
  #text = "";
  /** Where the blocks begin that may still change, and how many elements come before them. */
  #start = 0;
  #settled = 0;

  constructor(root) {
    this.#root = root;
  }

  /** Show this text; what it has in common with the one before is kept where it began the same way. */
  set(text) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) {
      this.#start = this.#settled = 0;
      this.#root.replaceChildren();
    }
    const rest = text.slice(this.#start);
    const isInCode = this.#extendCode(text);
    this.#text = text;
    if (isInCode) return;
    while (this.#root.childNodes.length > this.#settled) this.#root.lastChild.remove();
    const blocks = [...blocksOf(rest)];
    this.#root.append(...blocks.map(({ element }) => element()));
    this.#settled += Math.max(0, blocks.length - 2);
    this.#start += blocks.at(-2)?.at ?? 0;
  }

  /** A piece within a code block that is still open is only put to its end. */
  #extendCode(text) {
    const end = this.#root.lastElementChild?.querySelector(":scope > pre[data-open] > code")?.firstChild ?? null;
    if (end === null || !text.startsWith(this.#text)) return false;
    const piece = text.slice(this.#text.length);
    if (/[`~\r]/.test(this.#text.slice(this.#text.lastIndexOf("\n") + 1) + piece)) return false; // it may be the end of the block
    end.appendData(piece);
    return true;
  }
}

/** The elements of a whole text. */
export const markdown = (text) => [...blocksOf(text)].map(({ element }) => element());

/** The blocks of a text in order: `{at, element()}`, `at` being where each begins. */
function* blocksOf(text, depth = 0) {
  const lines = linesOf(text);
  for (let index = 0; index < lines.length; ) {
    if (lines[index].text.trim() === "") index += 1;
    else {
      const block = blockAt(lines, index, depth);
      yield { at: lines[index].at, element: block.element };
      index = block.next;
    }
  }
}

function linesOf(text) {
  const lines = [];
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf("\n", at);
    const stop = end < 0 ? text.length : end;
    lines.push({ at, text: text.slice(at, stop).replace(/\r$/, ""), isEnded: end >= 0 });
    at = stop + 1;
  }
  return lines;
}

/** The block that begins in a line: `{element, next}`, `next` being the first line after it. */
function blockAt(lines, index, depth) {
  const line = lines[index].text;
  const fence = FENCE.exec(line);
  if (fence !== null) return codeAt(lines, index, fence);
  const heading = HEADING.exec(line);
  if (heading !== null) return { next: index + 1, element: () => h(heading[1].length < 3 ? "h3" : "h4", {}, ...inline(withoutEnd(heading[2]))) };
  if (RULE.test(line)) return { next: index + 1, element: () => h("hr") };
  if (ROW.test(line) && DIVIDER.test(lines[index + 1]?.text ?? "")) return tableAt(lines, index);
  if (/^ {0,3}>/.test(line) && depth < MOST_DEPTH) return quoteAt(lines, index, depth);
  if (ITEM.test(line) && depth < MOST_DEPTH) return listAt(lines, index, depth);
  return paragraphAt(lines, index);
}

/** A heading may be closed by what opens it. */
const withoutEnd = (text) => text.trim().replace(/(?<!\S)#{1,6}$/, "").trim();

function codeAt(lines, index, [, mark, info]) {
  const isEnd = ({ text }) => text.trim().length >= mark.length && text.trim() === mark[0].repeat(text.trim().length);
  let next = index + 1;
  while (next < lines.length && !isEnd(lines[next])) next += 1;
  const inner = lines.slice(index + 1, next);
  const isOpen = next >= lines.length;
  const text = inner.map((each) => each.text).join("\n") + (isOpen && inner.at(-1)?.isEnded ? "\n" : "");
  return { next: next + 1, element: () => codeBlock(text, info.trim().split(/\s/)[0], isOpen) };
}

function codeBlock(text, language, isOpen) {
  const code = h("code", { text });
  const copy = async () => toast((await copied(code.textContent)) ? "Copied" : "The browser does not let this page copy", "good");
  const button = h("button", { type: "button", class: "button small", text: "Copy", "aria-label": `Copy the code${language ? ` (${language})` : ""}`, on: { click: copy } });
  return h("div", { class: "code" }, h("div", { class: "code-head" }, h("span", { text: language || "code" }), button), h("pre", { tabindex: "0", data: isOpen ? { open: "" } : {} }, code));
}

/** Put a text on the clipboard; whether that was allowed. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // without TLS there is no clipboard, and a user may forbid it
  }
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

function tableAt(lines, index) {
  let next = index + 2;
  while (next < lines.length && ROW.test(lines[next].text)) next += 1;
  const head = cells(lines[index].text);
  const row = (tag, texts) => h("tr", {}, ...head.map((_, column) => h(tag, {}, ...inline(texts[column] ?? ""))));
  const body = () => lines.slice(index + 2, next).map(({ text }) => row("td", cells(text)));
  return { next, element: () => h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", {}, h("thead", {}, row("th", head)), h("tbody", {}, ...body()))) };
}

function quoteAt(lines, index, depth) {
  let next = index;
  while (next < lines.length && /^ {0,3}>/.test(lines[next].text)) next += 1;
  const inner = lines.slice(index, next).map(({ text }) => text.replace(/^ {0,3}> ?/, ""));
  return { next, element: () => h("blockquote", {}, ...nested(inner, depth)) };
}

const nested = (lines, depth) => [...blocksOf(lines.join("\n"), depth + 1)].map(({ element }) => element());

/** A list goes on over indented lines and over empty ones that another item or an indented line follows. */
function listAt(lines, index, depth) {
  const [, indent, mark] = ITEM.exec(lines[index].text);
  const isNumbered = /\d/.test(mark);
  const items = [];
  let next = index;
  for (; next < lines.length; next += 1) {
    const { text } = lines[next];
    const item = ITEM.exec(text);
    if (item !== null && item[1].length <= indent.length && /\d/.test(item[2]) === isNumbered && !RULE.test(text)) items.push({ lines: [item[3]], width: item[0].length - item[3].length });
    else if (text.trim() === "" ? belongs(lines[next + 1]?.text, indent, isNumbered) : leading(text) > indent.length) items.at(-1).lines.push(text.slice(Math.min(leading(text), items.at(-1).width)));
    else break;
  }
  const first = Number.parseInt(mark, 10);
  const element = () => h(isNumbered ? "ol" : "ul", { start: isNumbered && first !== 1 ? String(first) : null }, ...items.map((item) => h("li", {}, ...itemContent(item.lines, depth))));
  return { next, element };
}

const leading = (text) => text.length - text.trimStart().length;

function belongs(text, indent, isNumbered) {
  if (text === undefined || text.trim() === "") return false;
  const item = ITEM.exec(text);
  return leading(text) > indent.length || (item !== null && item[1].length <= indent.length && /\d/.test(item[2]) === isNumbered);
}

/** An item of one line has no paragraph of its own. */
function itemContent(lines, depth) {
  if (lines.length === 1 && blockAt([{ text: lines[0], at: 0 }], 0, MOST_DEPTH).isText) return inline(lines[0]);
  return nested(lines, depth);
}

function paragraphAt(lines, index) {
  let next = index + 1;
  while (next < lines.length && lines[next].text.trim() !== "" && !beginsBlock(lines, next)) next += 1;
  const text = lines.slice(index, next).map((line) => line.text).join("\n");
  return { next, isText: true, element: () => h("p", {}, ...inline(text)) };
}

function beginsBlock(lines, index) {
  const { text } = lines[index];
  const isTable = ROW.test(text) && DIVIDER.test(lines[index + 1]?.text ?? "");
  return isTable || [FENCE, HEADING, RULE, ITEM, /^ {0,3}>/].some((begin) => begin.test(text));
}

// --- within a line ---

const INLINE = /(?<code>(?<ticks>`+)(?!`)(?<quoted>[^]{0,2000}?[^`])\k<ticks>(?!`))|\[(?<label>[^\][\n]{1,500})\]\((?<target>[^\s()]{1,2000}(?:\([^\s()]*\)[^\s()]*)?)\)|(?<url>https?:\/\/[^\s<>"'`]+)|(?<bold>\*\*(?=\S)(?<strong>[^*\n]*(?:\*(?!\*)[^*\n]*)*?)\*\*)|(?<![\w*])\*(?=[^\s*])(?<em>[^*\n]*[^\s*])\*(?![\w*])|(?<![\w_])_(?=[^\s_])(?<under>[^_\n]*[^\s_])_(?![\w_])|~~(?=\S)(?<struck>[^~\n]+)~~|\\(?<escaped>[\\`*_{}[\]()#+\-.!|~>])/g;

/** The parts of a text: texts and elements. */
function inline(text, depth = 0) {
  const parts = [];
  let done = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > done) parts.push(text.slice(done, found.index));
    parts.push(...inlineElement(found[0], found.groups, depth));
    done = found.index + found[0].length;
  }
  if (done < text.length) parts.push(text.slice(done));
  return parts;
}

function inlineElement(whole, groups, depth) {
  const inner = (text) => (depth < MOST_DEPTH ? inline(text, depth + 1) : [text]);
  if (groups.code) return [h("code", { text: groups.quoted.replace(/^ (.+) $/s, "$1") })];
  if (groups.label) return SAFE.test(groups.target) ? [link(groups.target, inner(groups.label))] : [whole];
  if (groups.url) {
    const url = groups.url.replace(/[.,;:!?)\]}*_]+$/, "");
    return [link(url, [url]), groups.url.slice(url.length)];
  }
  if (groups.strong) return [h("strong", {}, ...inner(groups.strong))];
  if (groups.em ?? groups.under) return [h("em", {}, ...inner(groups.em ?? groups.under))];
  if (groups.struck) return [h("s", {}, ...inner(groups.struck))];
  return [groups.escaped ?? whole];
}

/** A link that tells the other page nothing of this one; where it leads is in its title. */
const link = (target, content) => h("a", { href: target, title: target, target: "_blank", rel: "noopener noreferrer nofollow" }, ...content);
