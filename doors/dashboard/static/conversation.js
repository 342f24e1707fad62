// One session opened: what was said, the answer as it comes, a place to write, a way to stop it.

import { announce } from "./announcer.js";
import { byId, h, setAttribute, setText } from "./dom.js";
import { isPiece } from "./model.js";
import { bubble, messageElements } from "./messages.js";

const MESSAGES = 100;
const SETTLE = 150; // milliseconds in which several reasons to read the history again are one
const TONES = { WORKING: "busy", PAUSED: "warn", READY: "quiet" };

export class ConversationView {
  #model;
  #app;
  #key = null;
  #agent = "";
  #opener = null;
  #messages = [];
  #pending = new Map();
  #live = null;
  #liveText = "";
  #timer = null;
  #reading = null;

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
    byId("conversation-close").addEventListener("click", () => this.close());
    byId("abort").addEventListener("click", () => app.act("abort", { session: this.#key }, `The turn of ${this.#key} is being ended`));
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    byId("prompt").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#send();
      }
    });
  }

  get key() {
    return this.#key;
  }

  /** Show a session. `agent`: who is to answer where it is a new one; `write`: begin to write at once. */
  open(key, { agent = "", write = false } = {}) {
    if (this.#key === null) this.#opener = document.activeElement;
    this.#key = key;
    this.#agent = agent;
    this.#messages = [];
    this.#pending.clear();
    this.#live = null;
    byId("history").replaceChildren();
    byId("conversation").hidden = false;
    document.body.dataset.open = "";
    setText(byId("conversation-title"), key);
    this.draw();
    this.#read();
    (write ? byId("prompt") : byId("conversation-title")).focus();
    this.#app.mark("sessions");
  }

  /** Back to where it was opened from. */
  close() {
    if (this.#key === null) return;
    this.#key = null;
    byId("conversation").hidden = true;
    delete document.body.dataset.open;
    this.#app.mark("sessions", "events");
    const opener = this.#opener;
    this.#opener = null;
    (opener?.isConnected ? opener : byId("sessions-title")).focus();
  }

  /** Events of all sessions have come. */
  takeEvents(events) {
    for (const event of events) {
      if (event.session !== this.#key || isPiece(event.type)) continue;
      if (event.type === "done") this.#done(event);
      if (["run:start", "done", "tool:end", "tool:error", "session_reset", "compaction:end"].includes(event.type)) this.#readSoon();
    }
  }

  /** The stream had a gap: what was said meanwhile is in the transcript. */
  readAgain() {
    if (this.#key !== null) this.#readSoon();
  }

  draw() {
    if (this.#key === null) return;
    const session = this.#model.sessions.get(this.#key);
    const state = session?.state ?? "NEW";
    setText(byId("conversation-state"), state.toLowerCase());
    setAttribute(byId("conversation-state"), "data-tone", TONES[state] ?? "quiet");
    byId("abort").hidden = state !== "WORKING" && state !== "PAUSED";
    setText(byId("composer-hint"), state === "WORKING" ? "Enter adds to the running turn" : "Enter sends, Shift+Enter begins a line");
    const worker = this.#model.status?.workers.find((each) => each.session === this.#key);
    const facts = [session && `${session.agent}/${session.role}`, worker ? `worker ${worker.id}` : "no worker", session?.model];
    setText(byId("conversation-facts"), session === undefined ? `a new session${this.#agent ? ` of ${this.#agent}` : ""}` : facts.filter(Boolean).join(" · "));
    this.#pinned(() => this.#drawLive(session?.live ?? ""));
  }

  // --- what was said ---

  #drawLive(text) {
    if (text === "") return;
    const history = byId("history");
    if (this.#live === null) {
      this.#live = bubble("assistant", "");
      this.#live.dataset.live = "";
      this.#liveText = "";
      history.append(this.#live);
    } else if (this.#live.nextElementSibling !== null) history.append(this.#live);
    const element = this.#live.querySelector(".text");
    if (text.startsWith(this.#liveText) && element.firstChild !== null) element.firstChild.appendData(text.slice(this.#liveText.length));
    else setText(element, text);
    this.#liveText = text;
  }

  /** The answer is whole; what the transcript says takes its place soon. */
  #done({ run_id: run, data }) {
    const { reason, error } = data ?? {};
    announce(reason === "completed" ? `Answer complete in ${this.#key}` : `The turn in ${this.#key} ended: ${reason}`);
    if (this.#live !== null) delete this.#live.dataset.live;
    this.#pending.get(run)?.removeAttribute("data-pending");
    if (error?.message) this.#pinned(() => byId("history").append(h("p", { class: "said trouble", text: error.message })));
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
    const answer = await this.#app.ask("sessions.history", { session: key, limit: MESSAGES });
    this.#reading = null;
    if (answer !== null && key === this.#key) this.#pinned(() => this.#show(answer.messages));
    return undefined;
  }

  /** Bring the elements up to what the transcript has; those that are right already stay. */
  #show(messages) {
    const history = byId("history");
    const texts = messages.map((message) => JSON.stringify(message));
    let same = 0;
    while (same < texts.length && texts[same] === this.#messages[same]?.text) same++;
    for (const { elements } of this.#messages.slice(same)) for (const element of elements) element.remove();
    const fresh = messages.slice(same).map((message, index) => ({ text: texts[same + index], elements: messageElements(message) }));
    const last = this.#messages.slice(0, same).flatMap((each) => each.elements).at(-1);
    const elements = fresh.flatMap((each) => each.elements);
    if (last === undefined) history.prepend(...elements);
    else last.after(...elements);
    this.#messages = [...this.#messages.slice(0, same), ...fresh];
    this.#settle(messages.slice(same));
  }

  /** What the transcript has now need not be shown a second time. */
  #settle(fresh) {
    const said = fresh.filter((message) => message.role === "user").map((message) => JSON.stringify(message.content));
    for (const [run, element] of this.#pending) {
      if (!said.some((content) => content.includes(JSON.stringify(element.querySelector(".text").textContent).slice(1, -1)))) continue;
      element.remove();
      this.#pending.delete(run);
    }
    const session = this.#model.sessions.get(this.#key);
    if (this.#live !== null && !session?.live) {
      this.#live.remove();
      this.#live = null;
    }
  }

  /** Whoever reads the end stays there; whoever reads above is left in peace. */
  #pinned(change) {
    const history = byId("history");
    const isAtEnd = history.scrollTop + history.clientHeight >= history.scrollHeight - 24;
    change();
    if (isAtEnd) history.scrollTop = history.scrollHeight;
  }

  // --- writing ---

  async #send() {
    const field = byId("prompt");
    const text = field.value.trim();
    if (text === "" || this.#key === null) return;
    const key = this.#key;
    const run = crypto.randomUUID?.() ?? `web-${Date.now()}-${Math.random().toString(36).slice(2)}`;
    const element = bubble("user", text, true);
    field.value = "";
    this.#pending.set(run, element);
    byId("history").append(element);
    byId("history").scrollTop = byId("history").scrollHeight;
    const params = { session: key, text, run, ...(this.#agent ? { agent: this.#agent } : {}) };
    const answer = await this.#app.act("agent", params, "");
    if (answer !== null) return;
    this.#pending.delete(run);
    element.remove();
    if (this.#key === key && field.value === "") field.value = text;
  }
}
