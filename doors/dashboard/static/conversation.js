// One session opened: what was said, the answer as it comes, a place to write, a way to stop it.

import { announce } from "./announcer.js";
import { byId, h, setAttribute, setText } from "./dom.js";
import { Drafts } from "./drafts.js";
import { age, context } from "./format.js";
import { History } from "./history.js";
import { turnText } from "./spent.js";
import { endOf, hasFailed, isJoining, isPiece } from "./model.js";

const MESSAGES = 100;
const SETTLE = 150; // milliseconds in which several reasons to read the history again are one
const OPEN = "pool-open";
const READ_AFTER = new Set(["run:start", "done", "tool:start", "tool:end", "tool:error", "session_reset", "compaction:end"]);
const TONES = { working: "busy", approval: "warn", waiting: "warn", failed: "bad" };

export class ConversationView {
  #model;
  #app;
  #key = null;
  #agent = "";
  #opener = null;
  #drafts = new Drafts();
  #history = new History((text) => this.#send(text));
  #isDeleted = false;
  /** Whether it is known how the last turn ended, where it was over when the session was opened. */
  #isEndKnown = false;
  #timer = null;
  #reading = null;

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
    byId("conversation-close").addEventListener("click", () => this.close());
    byId("abort").addEventListener("click", () => app.act("abort", { session: this.#key }, `The turn of ${this.#key} is being ended`));
    byId("asks-note").querySelector("button").addEventListener("click", () => app.showApproval(this.#key));
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#sendWritten();
    });
    byId("prompt").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#sendWritten();
      }
    });
  }

  /** Open what was open before the page was loaded again, if it is still there. */
  reopen() {
    const key = sessionStorage.getItem(OPEN);
    if (key !== null && this.#model.sessions.has(key)) this.open(key);
  }

  get key() {
    return this.#key;
  }

  /** Show a session. `agent`: who is to answer where it is a new one; `write`: begin to write at once; `text`: send that, for `model`. */
  open(key, { agent = "", write = false, text = "", model = "" } = {}) {
    if (this.#key === null) this.#opener = document.activeElement;
    else this.#drafts.keep(this.#key, byId("prompt").value);
    this.#key = key;
    byId("prompt").value = this.#drafts.take(key);
    this.#agent = agent;
    this.#history.clear();
    this.#isEndKnown = false;
    this.#isDeleted = false;
    sessionStorage.setItem(OPEN, key);
    byId("conversation").hidden = false;
    document.body.dataset.open = "";
    setText(byId("conversation-title"), key);
    this.draw();
    this.#read();
    if (text !== "") this.#send(text, model);
    (write ? byId("prompt") : byId("conversation-title")).focus();
    this.#app.mark("sessions", "approvals");
  }

  /** Make a change to what is shown of the conversation; a reader at its end stays there. */
  change(work) {
    this.#history.change(work);
  }

  /** Back to where it was opened from. */
  close() {
    if (this.#key === null) return;
    this.#drafts.keep(this.#key, byId("prompt").value);
    this.#key = null;
    sessionStorage.removeItem(OPEN);
    byId("conversation").hidden = true;
    delete document.body.dataset.open;
    this.#app.mark("sessions", "approvals", "events");
    const opener = this.#opener;
    this.#opener = null;
    (opener?.isConnected ? opener : byId("sessions-title")).focus();
  }

  /** Events of all sessions have come. */
  takeEvents(events) {
    for (const event of events) {
      if (event.session !== this.#key || isPiece(event.type)) continue;
      if (event.type === "run:accepted") this.#isEndKnown = true;
      if (event.type === "session_deleted" || event.type === "run:accepted") this.#isDeleted = event.type === "session_deleted";
      if (event.type === "session_deleted") this.#history.clear();
      if (event.type === "session_reset") this.#history.forgetTurns();
      if (event.type === "run:start" && !isJoining(event) && !this.#isOld(event)) this.#history.begin();
      if (event.type === "done") this.#done(event);
      if (READ_AFTER.has(event.type)) this.#readSoon();
    }
  }

  /** The stream had a gap: what was said meanwhile is in the transcript. */
  readAgain() {
    if (this.#key !== null) this.#readSoon();
  }

  draw() {
    if (this.#key === null) return;
    const session = this.#model.sessions.get(this.#key);
    const waits = this.#model.waitsFor(this.#key);
    const state = session?.state ?? "idle";
    const shown = this.#model.shownState(this.#key);
    setText(byId("conversation-state"), shown);
    setAttribute(byId("conversation-state"), "data-tone", TONES[shown] ?? "quiet");
    byId("abort").hidden = state === "idle";
    setText(byId("composer-hint"), state === "working" ? "Enter adds to the running turn" : "Enter sends, Shift+Enter begins a line");
    this.#drawNote(state, waits);
    const worker = this.#model.status?.workers.find((each) => each.session === this.#key);
    const said = worker?.report ?? {};
    const facts = [session && `${session.agent}/${session.role}`, worker ? `worker ${worker.id}` : "no worker", said.model ?? session?.model, said.mode, context(said), said.strategy === "refed" && "refed", session?.spent.text];
    setText(byId("conversation-facts"), session === undefined ? this.#absence() : facts.filter(Boolean).join(" · "));
    this.#history.change(() => {
      for (const [run, message] of session?.accepted ?? []) this.#history.drawPending({ run, ...message });
      this.#history.drawLive(session?.live ?? "", session?.isFromStart);
    });
  }

  /** The model that the session's worker says it uses, or the one that the session has chosen; empty where neither does. */
  get #modelName() {
    const worker = this.#model.status?.workers.find((each) => each.session === this.#key);
    return worker?.report?.model ?? this.#model.sessions.get(this.#key)?.model ?? "";
  }

  /** Why there is no session of that name. */
  #absence() {
    if (this.#isDeleted) return "This session was deleted; a prompt begins a new one";
    return `a new session${this.#agent ? ` of ${this.#agent}` : ""}`;
  }

  /** What the turn waits for: a worker, or a person. */
  #drawNote(state, waits) {
    const names = [...this.#model.permissions.values()].filter(({ session }) => session === this.#key).map(({ call }) => call.name);
    const note = byId("asks-note");
    note.hidden = state !== "approval" && names.length === 0 && waits === null;
    if (note.hidden) return;
    const asked = names.length > 0 ? `Waits for your approval: ${names.join(", ")}` : "Waits for an answer to a question of the agent, which this page cannot give";
    setText(note.querySelector("span"), waits === null || names.length > 0 ? asked : waitText(waits, this.#model.status.waiting.length));
    note.querySelector("button").hidden = names.length === 0;
  }

  // --- what was said ---

  /** Whether an event is from before the page was loaded. */
  #isOld({ seq }) {
    return seq <= this.#app.head;
  }

  /** The answer is whole; what the transcript says takes its place soon. */
  #done(event) {
    const { run_id: run, data, unanswered, turn, message } = event;
    const { reason, text } = data ?? {};
    const isOld = this.#isOld(event);
    if (!isOld) announce(reason === "completed" ? `Answer complete in ${this.#key}` : `The turn in ${this.#key} ended: ${reason}`);
    const cost = turn === undefined ? "" : turnText({ ...turn, model: this.#modelName });
    const end = { run, message, text: text ?? "", trouble: troubleOf(data ?? {}, unanswered), cost };
    this.#history.change(() => (isOld ? this.#history.keepEnd(end) : this.#history.end(end)));
  }

  #readSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read(), SETTLE);
  }

  async #read() {
    const key = this.#key;
    if (key === null || this.#reading === key) return key === null ? undefined : this.#readSoon();
    if (!this.#model.sessions.has(key)) return undefined;
    this.#reading = key;
    const ended = this.#history.endedRuns;
    const wasOver = this.#model.sessions.get(key).state === "idle";
    const answer = await this.#app.ask("sessions.history", { session: key, limit: MESSAGES });
    this.#reading = null;
    if (answer !== null && key === this.#key) this.#show(answer.messages, ended, wasOver);
    if (key === this.#key && !this.#isEndKnown) await this.#lookAtEnd(key);
    return undefined;
  }

  /** Of a turn that had ended before the session was opened the transcript does not say how. */
  async #lookAtEnd(key) {
    this.#isEndKnown = true;
    const session = this.#model.sessions.get(key);
    if (session?.state !== "idle" || session.lastRun === null) return;
    const outcome = await this.#app.ask("agent.wait", { session: key, run_id: session.lastRun, timeout_ms: 0 });
    if (outcome === null || outcome.status === "timeout" || key !== this.#key || session.lastRun !== outcome.run_id || session.state !== "idle") return;
    session.failed = hasFailed(outcome);
    const seconds = outcome.started_at ? outcome.ended_at - outcome.started_at : null;
    const cost = turnText({ seconds, usage: outcome.usage ?? null, model: this.#modelName });
    this.#history.change(() => this.#history.tellEnd({ run: outcome.run_id, text: outcome.text ?? "", trouble: troubleOf(outcome, []), cost }));
    this.#app.mark("sessions", "conversation");
  }

  #show(messages, ended, wasOver) {
    const session = this.#model.sessions.get(this.#key);
    const shown = { live: session?.live ?? "", isOver: wasOver && session?.state === "idle", lastRun: session?.lastRun ?? null, ended };
    this.#history.change(() => this.#history.show(messages, shown));
  }

  // --- writing ---

  #sendWritten() {
    const field = byId("prompt");
    const text = field.value.trim();
    if (text === "" || this.#key === null) return;
    field.value = "";
    this.#send(text);
  }

  /** Send a message to the open session; where it was refused it stands in that session's field again, before what was written since. */
  async #send(text, model = "") {
    const key = this.#key;
    const run = crypto.randomUUID?.() ?? `web-${Date.now()}-${Math.random().toString(36).slice(2)}`;
    this.#history.drawPending({ run, text, started: false, joined: false });
    this.#history.toEnd();
    const params = { session: key, text, run, ...(this.#agent ? { agent: this.#agent } : {}), ...(model ? { model } : {}) };
    const answer = await this.#app.act("agent", params, "");
    if (answer !== null) return;
    const isOpen = this.#key === key;
    const refused = [text, isOpen ? byId("prompt").value : this.#drafts.take(key)].filter(Boolean).join("\n");
    if (!isOpen) return this.#drafts.keep(key, refused);
    this.#history.withdraw(run);
    byId("prompt").value = refused;
    return undefined;
  }
}

/** `Waits for a worker for 12 s, place 2 of 5: the pool is full`. */
function waitText({ why, place, waited }, all) {
  const since = waited === null ? "" : ` for ${age(waited)}`;
  return `Waits${place === null ? "" : " for a worker"}${waited >= 1 ? since : ""}${place === null ? "" : `, place ${place} of ${all}`}: ${why}`;
}

/** Why a turn did not end well, and which of its questions are closed with it: `{text, isFailure}`; null where it did. */
function troubleOf(data, unanswered) {
  const end = endOf(data);
  if (end === "" && unanswered.length === 0) return null;
  const closed = unanswered.length > 0 ? ` What waited for approval was not run: ${unanswered.join(", ")}.` : "";
  return { text: `The turn ended: ${end || "it is over"}.${closed}`, isFailure: hasFailed(data) };
}
