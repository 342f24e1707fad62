// Log files of workers and of the supervisor: the last lines, what is added while they are looked at, earlier ones on demand.

import { show } from "./dialogs.js";
import { h, setText } from "./dom.js";
import { clock, plural } from "./format.js";

const LINES = 200;
const MOST_LINES = 5_000;
const EVERY = 2_000;
const SUPERVISOR = "supervisor";
const LEVELS = { warning: "warn", error: "bad", critical: "bad" };
const GOOD_END = /^ended: (exited with code 0|.*was stopped)/;

/** Show the log of a worker, or the supervisor's; another one can be chosen there. */
export async function showLog(app, name, living) {
  const log = new OpenLog(app, name);
  const names = (await app.ask("logs.list"))?.logs ?? [];
  if (!names.includes(name)) names.unshift(name);
  const label = (each) => (each === SUPERVISOR ? "the supervisor" : living.has(each) ? each : `${each} (ended)`);
  const choice = h("select", { id: "log-name", on: { change: () => log.begin(choice.value) } }, ...names.map((each) => h("option", { value: each, text: label(each) })));
  choice.value = name;
  const timer = setInterval(() => document.hidden || log.readOn(), EVERY);
  log.begin(name);
  const head = h("div", { class: "log-head" }, h("label", { for: "log-name", text: "Log of" }), choice, h("span", { class: "spring" }), log.earlier);
  await show("Logs", [head, log.element, log.note], [{ label: "Close", value: "close", focus: true }], "wide");
  clearInterval(timer);
  log.close();
}

/** One log as far as it was read. `before` and `after`: positions in it, null where there is nothing. */
class OpenLog {
  element = h("pre", { class: "output", tabindex: "0", role: "region", "aria-label": "Lines of the log" });
  /** The button that reads back. */
  earlier = h("button", { type: "button", class: "button small", text: "Earlier lines", hidden: true, on: { click: () => this.#readBack() } });
  note = h("p", { class: "hint" });
  #app;
  #name;
  #before = null;
  #after = null;
  #asking = false;
  /** Counts the logs that were chosen: an answer about an earlier one comes too late. */
  #turn = 0;

  constructor(app, name) {
    this.#app = app;
    this.#name = name;
  }

  /** Show the end of this log. */
  async begin(name) {
    this.#name = name;
    this.#turn += 1;
    this.#asking = false;
    this.element.replaceChildren();
    const page = await this.#ask({}, (...given) => this.#app.act(...given, ""));
    if (page !== null) this.#replace(page);
  }

  /** What was added since; where more was added than a page holds, the page takes the place of all. */
  async readOn() {
    if (this.#asking) return;
    const turn = this.#turn;
    const page = await this.#ask(this.#after === null ? {} : { after: this.#after });
    if (page === null && turn === this.#turn) setText(this.note, "It cannot be read just now; what is shown is from before.");
    if (page === null) return;
    if (this.#after === null || page.before !== null) this.#replace(page);
    else this.#append(page);
    this.#after = page.after;
  }

  close() {
    this.#turn += 1;
  }

  async #readBack() {
    const page = this.#before === null ? null : await this.#ask({ before: this.#before });
    if (page === null) return;
    const height = this.element.scrollHeight;
    this.element.prepend(...page.lines.map(line));
    this.element.scrollTop += this.element.scrollHeight - height;
    this.#settle(page.before);
  }

  /** A page, or null: where it could not be had, `call` may have said why; the next look tries again. */
  async #ask(more, call = this.#app.ask) {
    const turn = this.#turn;
    this.#asking = true;
    const page = await call("logs.read", { log: this.#name, limit: LINES, ...more });
    if (turn !== this.#turn) return null;
    this.#asking = false;
    return page;
  }

  #replace(page) {
    this.element.replaceChildren(...page.lines.map(line));
    this.element.scrollTop = this.element.scrollHeight;
    this.#after = page.after;
    this.#settle(page.before);
  }

  #append(page) {
    const isAtEnd = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 8;
    this.element.append(...page.lines.map(line));
    const height = this.element.scrollHeight;
    while (this.element.childElementCount > MOST_LINES) this.element.firstElementChild.remove();
    if (isAtEnd) this.element.scrollTop = this.element.scrollHeight;
    else this.element.scrollTop -= height - this.element.scrollHeight;
    this.#settle(this.#before);
  }

  #settle(before) {
    this.#before = before;
    const isFull = this.element.childElementCount >= MOST_LINES;
    this.earlier.hidden = before === null || isFull;
    const shown = this.element.childElementCount;
    const rest = isFull ? `; in a terminal, pool logs ${this.#name === SUPERVISOR ? "--supervisor" : this.#name} -n 100000 shows more` : "";
    setText(this.note, shown === 0 ? "Nothing was written to it yet." : `${plural(shown, "line")}${before === null && !isFull ? ", all that is kept" : ""}${rest}`);
  }
}

/** One line: its time, then what was written; a note of the supervisor, and trouble, in their own colours. */
function line({ at, source, text }) {
  const known = source === "log" ? describe(text) : { tone: "", text };
  const tone = source === "pool" ? `note ${text.startsWith("ended") && !GOOD_END.test(text) ? "bad" : ""}` : known.tone;
  return h("span", { class: `log-line ${tone}` }, at === null ? "" : h("span", { class: "at", text: `${clock(at)} ` }), `${known.text}\n`);
}

/** A line of the supervisor's log, which is JSON: its event, then its other facts. */
function describe(text) {
  try {
    const { ts: _, level, event, ...facts } = JSON.parse(text);
    const said = Object.entries(facts).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
    return { tone: LEVELS[level] ?? "", text: [level, event, ...said].filter(Boolean).join(" ") };
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
    return { tone: "", text }; // a traceback is no JSON
  }
}
