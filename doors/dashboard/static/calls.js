// What a tool call would do, in full: its parts, page by page, with nothing in them invisible.

import { h } from "./dom.js";
import { plural } from "./format.js";

const PAGES_AT_ONCE = 16;
const INDENT = 40;
const DOTS = 8;
const EMPTY_LINES = 3;
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}|[\u2800\u3164\uffa0\u115f\u1160]/gu;
const TONES = { "+": "added", "-": "removed", "@": "place" };

/** One call that waits, as far as it was asked for. `changed` is called when more of it is there. */
export class CallInFull {
  /** Whether all of it is shown. */
  isWhole = false;
  /** What a decision has to repeat, where the end of a long call says so. */
  seen = undefined;
  element = h("div", { class: "call" });
  #app;
  #about;
  #changed;
  #offset = 0;
  #last = null;

  constructor(app, session, call, changed) {
    this.#app = app;
    this.#about = { session, call_id: call.id };
    this.#changed = changed;
    this.load(1);
  }

  /** Show more pages, this number of them. */
  async load(pages = PAGES_AT_ONCE) {
    this.element.querySelector(".hidden-part")?.remove();
    let shown = null;
    for (let left = pages; left > 0; left -= 1) {
      shown = await this.#app.ask("approvals.show", { ...this.#about, offset: this.#offset });
      if (shown === null) break;
      this.#take(shown.page);
      if (!shown.page.hidden) break;
    }
    this.isWhole = shown !== null && !shown.page.hidden;
    this.seen = shown?.page.seen;
    if (shown?.is_partial) this.element.append(h("p", { class: "hidden-part", text: "Its agent shows no more than this of its calls." }));
    else if (!this.isWhole) this.element.append(this.#more(shown?.page));
    this.#changed();
  }

  #more(page) {
    const lines = page?.hidden_lines > 1 ? ` in ${plural(page.hidden_lines, "line")}` : "";
    const words = page ? `${page.hidden.toLocaleString("en")} more characters${lines} are hidden.` : "The call could not be had.";
    const button = h("button", { type: "button", class: "button", text: page ? "Show all of it" : "Try again", on: { click: () => this.load() } });
    return h("p", { class: "hidden-part" }, h("span", { text: words }), " ", button);
  }

  #take(page) {
    this.#app.changeHistory(() => this.#append(page));
  }

  #append(page) {
    for (const part of page.parts) {
      if (part.offset && this.#last) this.#add(this.#last, part);
      else this.#begin(part);
      this.#offset += part.text.length - surplus(part.text);
    }
  }

  #begin(part) {
    const element = partElement(part.name);
    this.element.append(element);
    this.#last = element.lastElementChild;
    this.#add(this.#last, part);
  }

  #add(text, { text: more, form }) {
    if (form !== "diff") {
      text.append(visibleLines(more, 0).join("\n") + (more.endsWith("\n") ? "\n" : ""));
      return;
    }
    text.append(...diffLines(visibleLines(more, 1)));
  }
}

/** A part of a call: its name, and a place for its text, which is the last child. */
export const partElement = (name) => h("div", { class: "part" }, h("span", { class: "part-name", text: name }), h("pre"));

/** The lines of a diff, each in the colour of what becomes of it. */
export const diffLines = (lines) => lines.map((line) => h("span", { class: TONES[line[0]] ?? null, text: `${line}\n` }));

/** Units of a string that are the second half of a character: the supervisor counts characters. */
const surplus = (text) => (text.match(/[\ud800-\udbff][\udc00-\udfff]/g) ?? []).length;

/** The lines with what is in them visible; of many empty ones in a row, how many. `skip`: no part of the text. */
export function visibleLines(text, skip) {
  const lines = (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n");
  const shown = [];
  for (let at = 0; at < lines.length; at += 1) {
    let empty = 0;
    while (at + empty < lines.length && lines[at + empty].trim() === "") empty += 1;
    if (empty >= EMPTY_LINES) {
      shown.push(`⟨${empty} empty lines⟩`);
      at += empty - 1;
    } else shown.push(lines[at].slice(0, skip) + marked(lines[at].slice(skip)));
  }
  return shown;
}

/** One line with runs of spaces, tabs, control and blank characters made visible. */
export function marked(line) {
  const spaced = line.replace(/ {2,}| $/g, (run, at) => {
    const isIndent = at === 0 && run.length < line.length && run.length <= INDENT;
    if (isIndent) return run;
    return run.length <= DOTS ? "·".repeat(run.length) : `⟨${run.length} spaces⟩`;
  });
  return spaced.replaceAll("\t", "⇥   ").replace(INVISIBLE, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}
