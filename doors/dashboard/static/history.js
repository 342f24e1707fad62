// What was said in one session, as elements: the transcript, the turn that goes on, messages that wait for theirs.

import { byId, h, setAttribute, setText } from "./dom.js";
import { short } from "./format.js";
import { MarkdownText } from "./markdown.js";
import { JOINED, askedIn, bubble, messageElements, textsOf } from "./messages.js";
import { begins, findMessage, holdsLines, isSame, lastOfTurn } from "./turns.js";

const CUT_OFF = "Agent, cut off";
const KEPT_SETTLED = 1_000;
const KEPT_ENDS = 200;

/** A text as it stands in JSON. */
const inside = (text) => JSON.stringify(text.trim()).slice(1, -1);

export class History {
  #root = byId("history");
  /** The transcript, then what it does not have yet of the turn, then messages that no answer belongs to yet. */
  #transcript = h("div", { class: "group" });
  #turn = h("div", { class: "group" });
  #waiting = h("div", { class: "group" });
  /** The questions of the turn; their view fills it. */
  #questions = byId("asked-here");
  /** The transcript's messages: `{text, said, asked, begins, elements, isMatched, runs}`. `text`: as JSON; `said`: a user's texts; `asked`: see `askedIn`; `begins`: whether a turn begins with it; `elements`: with what was put behind it; `runs`: whose message it is. */
  #messages = [];
  /** Messages that the transcript does not have, by run: `{element, text, started, joined, over}`. */
  #pending = new Map();
  /** Runs whose message is settled: the transcript has it, or never will. */
  #settled = new Set();
  /** Ends of runs that the page has not watched, by run, until the transcript has come that has their turns. */
  #ends = new Map();
  /** The latest run whose end was said; that is said once. */
  #ended = null;
  #live = null;
  #liveText = "";
  #liveMarkdown = null;
  #hasFailed = false;
  #again;
  /** What began the last turn, where that is known and can be sent again. */
  #asked = null;
  #retry = null;

  /** `again(text)`: send a message once more. */
  constructor(again) {
    this.#again = again;
  }

  /** Begin with an empty page. */
  clear() {
    this.#messages = [];
    this.#pending.clear();
    this.#settled.clear();
    this.#ends.clear();
    this.#ended = null;
    this.#live = null;
    this.#hasFailed = false;
    this.#asked = null;
    this.#retry = null;
    for (const group of [this.#transcript, this.#turn, this.#waiting]) group.replaceChildren();
    this.#root.replaceChildren(this.#transcript, this.#turn, this.#questions, this.#waiting);
  }

  /** Make a change; a reader at the end stays there, one further up is not moved. */
  change(work) {
    const root = this.#root;
    const isAtEnd = root.scrollTop + root.clientHeight >= root.scrollHeight - 24;
    work();
    if (isAtEnd) this.toEnd();
  }

  toEnd() {
    this.#root.scrollTop = this.#root.scrollHeight;
  }

  /** A message that the transcript does not have. `started`: its turn goes on; `joined`: it came into a running turn. */
  drawPending({ run, text, started, joined }) {
    if (this.#settled.has(run)) return;
    const known = this.#pending.get(run) ?? { element: bubble("user", text), text, over: false };
    if (!this.#pending.has(run)) known.element.dataset.pending = "";
    if (!this.#pending.has(run)) this.#dropRetry();
    if (started && !joined) this.#asked = text;
    this.#pending.set(run, Object.assign(known, { started, joined }));
    if (joined) setText(known.element.querySelector(".by"), JOINED);
    if (!known.element.isConnected) this.#waiting.append(known.element);
    if (started && !joined && known.element.parentElement === this.#waiting) this.#turn.append(known.element);
    if (started) this.#settle(run, this.#messages); // the transcript may have come before the events
  }

  /** Take a message back that was refused. */
  withdraw(run) {
    this.#pending.get(run)?.element.remove();
    this.#pending.delete(run);
  }

  /** The part of the running turn's answer that the transcript does not have; `isFromStart`: all of that. */
  drawLive(text, isFromStart) {
    if (text === "") return;
    if (this.#live === null) {
      this.#live = bubble("assistant", "");
      this.#live.dataset.live = "";
      this.#liveText = "";
      this.#liveMarkdown = new MarkdownText(this.#live.querySelector(".text"));
      this.#turn.append(this.#live);
    }
    setText(this.#live.querySelector(".by"), isFromStart ? "Agent" : "Agent; the beginning follows when the answer is complete");
    this.#liveMarkdown.set(text);
    this.#liveText = text;
  }

  /** A turn begins: what is left of the one before belongs to what was said. */
  begin() {
    this.#settleTurn();
    this.#hasFailed = false;
    this.#asked = null;
    this.#dropRetry();
  }

  #dropRetry() {
    this.#retry?.remove();
    this.#retry = null;
  }

  /**
   * A run has ended; `message`: what began it, `{text, joined}`, where that is known; `text`: what was said in it;
   * `trouble`: `{text, isFailure}`, why, where it did not end well; else null; `cost`: what the turn has cost.
   */
  end(end) {
    // of a run whose text is not known, as a heartbeat's, no transcript could say later which turn was its
    const isWatched = this.#pending.has(end.run) || this.#settled.has(end.run) || end.message === undefined;
    if (!isWatched) return this.keepEnd(end);
    if (this.#live !== null) delete this.#live.dataset.live;
    this.#endPending(end.run);
    if (this.#ended === end.run) return undefined;
    this.#ended = end.run;
    if (end.trouble !== null) this.tell(end.trouble);
    this.#tellCost(end.cost);
    return undefined;
  }

  /** A run has ended that the page has not watched, see `end`: `show` puts that to its turn, or leaves it out. */
  keepEnd(end) {
    this.#endPending(end.run);
    this.#ends.set(end.run, end);
    if (this.#ends.size > KEPT_ENDS) this.#ends.delete(this.#ends.keys().next().value);
  }

  /** Another conversation begins, while no turn runs: what is left of turns is of the one before. */
  forgetTurns() {
    this.#ends.clear();
    this.#asked = null;
    this.#live = null;
    this.#dropRetry();
    for (const [run, { over }] of this.#pending) {
      if (!over) continue;
      this.#pending.delete(run);
      this.#noteSettled(run);
    }
    this.#turn.replaceChildren();
  }

  #endPending(run) {
    const pending = this.#pending.get(run);
    if (pending === undefined) return;
    delete pending.element.dataset.pending;
    pending.over = true;
    if (!pending.joined) this.#asked ??= pending.text;
    if (pending.element.parentElement === this.#waiting) this.#turn.append(pending.element);
  }

  #tellCost(cost) {
    if (cost !== "") this.#turn.append(costElement(cost));
  }

  /** Say why a turn has failed; once, however many runs it had. */
  tell(trouble) {
    this.#hasFailed = true;
    const last = this.#turn.lastElementChild;
    if (last?.querySelector(".cause")?.textContent === trouble.text) return;
    this.#dropRetry();
    this.#turn.append(troubleElement(trouble, this.#makeRetry()));
  }

  #makeRetry() {
    this.#retry = h("button", { type: "button", class: "button small", text: "Try again", on: { click: () => this.#again(this.#lastAsked()) } });
    this.#updateRetry();
    return this.#retry;
  }

  #lastAsked() {
    return this.#asked ?? this.#messages.findLast((each) => each.asked !== null)?.asked ?? null;
  }

  #updateRetry() {
    if (this.#retry === null) return;
    const text = this.#lastAsked();
    this.#retry.hidden = text === null;
    setAttribute(this.#retry, "title", text === null ? null : short(text, 300));
  }

  /** Say of the last turn, once, why it has failed, what it has cost, and what was said in it, where no transcript has that; see `end`. */
  tellEnd({ run, message, text, trouble, cost }) {
    if (this.#ended === run) return;
    this.#ended = run;
    if (message !== undefined && !message.joined) this.#asked = message.text;
    if (trouble !== null && !this.#hasSaid(text)) this.#turn.append(bubble("assistant", text, CUT_OFF));
    if (trouble !== null) this.tell(trouble);
    this.#tellCost(cost);
    this.#settleTurn();
  }

  get #lastShown() {
    return this.#messages.findLast(({ elements }) => elements.length > 0);
  }

  /** Whether the transcript has all of a text. */
  #hasSaid(text) {
    return text.trim() === "" || this.#messages.some((each) => each.text.includes(inside(text)));
  }

  /** Put ends to their turns: the last one's behind the last message, an earlier one's behind what was said in it. */
  #placeEnds(ended, lastRun) {
    const ends = [...this.#ends.values()].filter(({ run }) => ended.has(run)).reverse(); // of a text said twice the latest first
    const found = new Map(ends.map((end) => [end, findMessage(this.#messages, end)]));
    for (const [end, message] of found) {
      this.#ends.delete(end.run);
      const last = message && lastOfTurn(this.#messages, message);
      if (end.run === lastRun && (!message || last === this.#lastShown)) this.#placeLast(end, message !== undefined);
      else if (last) this.#placeEnd(end, last);
    }
  }

  #placeLast(end, isSaid) {
    const isShown = isSaid || this.#ended === end.run || this.#settled.has(end.run) || this.#pending.has(end.run);
    if (!isShown && end.message !== undefined) this.#turn.append(bubble("user", end.message.text));
    this.tellEnd(end);
  }

  #placeEnd({ text, trouble, cost }, message) {
    const causes = message.elements.map((element) => element.querySelector(".cause")?.textContent);
    const isNew = trouble !== null && !causes.includes(trouble.text); // each run of the turn says it
    const elements = [
      isNew && !this.#hasSaid(text) ? bubble("assistant", text, CUT_OFF) : null,
      isNew ? troubleElement(trouble, null) : null,
      cost === "" ? null : costElement(cost),
    ].filter((each) => each !== null);
    message.elements.at(-1).after(...elements);
    message.elements.push(...elements);
  }

  /** The runs that have ended and whose message, or whose turn, the transcript does not have yet. */
  get endedRuns() {
    return new Set([...this.#ends.keys(), ...[...this.#pending].filter(([, { over }]) => over).map(([run]) => run)]);
  }

  /**
   * Bring the elements up to what the transcript has; `live`: the running answer that it does not have; `ended`: the
   * `endedRuns` of when it was asked for: only of those it says whether it has their message; `lastRun`: the one that
   * was accepted last.
   */
  show(messages, { live, isOver, lastRun, ended }) {
    const texts = messages.map((message) => JSON.stringify(message));
    this.#dropOlder(texts);
    let same = 0;
    while (same < texts.length && texts[same] === this.#messages[same]?.text) same++;
    for (const { elements } of this.#messages.splice(same)) for (const element of elements) element.remove();
    const fresh = messages.slice(same);
    for (const [index, message] of fresh.entries()) {
      const said = message.role === "user" ? textsOf(message).map((each) => each.trim()) : [];
      this.#messages.push({ text: texts[same + index], said, elements: messageElements(message), asked: askedIn(message), begins: begins(message), isMatched: false, runs: new Set() });
    }
    this.#transcript.append(...this.#messages.slice(same).flatMap((each) => each.elements));
    this.#settleMessages(this.#messages.slice(same), ended);
    if (live === "") this.#settleLive(fresh);
    if (isOver) this.#settleTurn();
    this.#placeEnds(ended, lastRun);
    this.#updateRetry();
  }

  /** The oldest messages fall out of the part that is asked for; the others stay as they are. */
  #dropOlder(texts) {
    const fits = (from) => this.#messages.slice(from).every((each, index) => each.text === texts[index]);
    let from = 0;
    while (!fits(from)) from++;
    if (from === this.#messages.length) return; // it is another transcript: `show` finds out
    for (const { elements } of this.#messages.splice(0, from)) for (const element of elements) element.remove();
  }

  /** What the transcript has need not be shown a second time; what it will never have stays. */
  #settleMessages(fresh, ended) {
    for (const [run, { element }] of this.#pending) {
      if (this.#settle(run, fresh) || this.#settle(run, this.#messages) || this.#settle(run, fresh, holdsLines) || !ended.has(run)) continue;
      this.#pending.delete(run);
      this.#noteSettled(run);
      if (element.parentElement === this.#waiting) this.#turn.append(element);
    }
  }

  /** Whether one of the transcript's messages is that of a run whose turn has begun: then it alone is shown. `holds`: whether a message's text has the run's. */
  #settle(run, messages, holds = isSame) {
    const { element, text, started, over } = this.#pending.get(run);
    const found = messages.find(({ said, isMatched }) => !isMatched && said.some((each) => holds(each, text.trim())));
    if (found === undefined || !(started || over)) return false;
    found.isMatched = holds === isSame; // one that holds several is that of each
    found.runs.add(run);
    this.#pending.delete(run);
    this.#noteSettled(run);
    element.remove();
    return true;
  }

  #noteSettled(run) {
    this.#settled.add(run);
    if (this.#settled.size > KEPT_SETTLED) this.#settled.delete(this.#settled.values().next().value);
  }

  /** The answer is in the transcript; one that was cut off and is not stays as far as it came. */
  #settleLive(fresh) {
    if (this.#live === null) return;
    const isSaid = fresh.some(({ role, content }) => role === "assistant" && JSON.stringify(content).includes(inside(this.#liveText)));
    if (this.#hasFailed && !isSaid) setText(this.#live.querySelector(".by"), CUT_OFF);
    else this.#live.remove();
    this.#live = null;
  }

  /** What is left of a turn goes behind the last message, and away with it. */
  #settleTurn() {
    const last = this.#lastShown;
    if (last === undefined) return;
    const rest = [...this.#turn.children].filter((element) => element !== this.#live && !("pending" in element.dataset));
    this.#transcript.append(...rest);
    last.elements.push(...rest);
  }
}

/** Why a turn did not end well; `retry`: the button behind that, or null. */
function troubleElement({ text, isFailure }, retry) {
  return h("div", { class: "said trouble", data: { tone: isFailure ? "bad" : "warn" } }, h("p", { class: "cause", text }), retry);
}

const costElement = (text) => h("p", { class: "cost", text });
