// The stream of events as it comes, newest first: what agents do, internals on demand; in a fixed number of rows.

import { byId, h, setAttribute, setText } from "./dom.js";
import { clock, count } from "./format.js";
import { isPiece } from "./model.js";
import { displayOf } from "./summary.js";

const ROWS = 150;
/** Reports of the pool that tell of trouble; its others, which the table of events does not list, are internals. */
const TROUBLE = new Set(["breaker_opened", "breaker_closed", "session_failed", "worker_contaminated", "guard_lost"]);

export class EventsView {
  #model;
  #app;
  #seen = 0;
  #held = false;

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
    const again = () => this.#again();
    for (const box of document.querySelectorAll(".chips input")) box.addEventListener("change", again);
    byId("events-internals").addEventListener("change", (event) => (byId("events-channels").hidden = !event.target.checked));
    byId("events-filter").addEventListener("input", again);
    byId("events-hold").addEventListener("click", () => this.hold());
    byId("events").addEventListener("click", (event) => {
      const session = event.target.closest(".event")?.dataset.session;
      if (session && !getSelection().toString()) app.openSession(session);
    });
  }

  /** Stop the list, or let it go on. */
  hold() {
    this.#held = !this.#held;
    setAttribute(byId("events-hold"), "aria-pressed", String(this.#held));
    setText(byId("events-hold"), this.#held ? "Go on" : "Hold");
    if (!this.#held) this.#again();
  }

  /** Put a line among the events that is none. */
  mark(text) {
    byId("events").prepend(h("li", { class: "event break", text }));
  }

  draw() {
    setText(byId("events-count"), this.#held ? "held" : count(this.#model.eventCount));
    if (this.#held) return;
    const fresh = this.#fresh();
    const list = byId("events");
    const isAtTop = list.scrollTop < 4;
    const height = isAtTop ? 0 : list.scrollHeight;
    for (const event of fresh) list.prepend(fill(list.childElementCount >= ROWS ? list.lastElementChild : row(), event));
    if (!isAtTop && fresh.length > 0) list.scrollTop += list.scrollHeight - height;
  }

  /** The latest events that pass the filter and were not shown yet, oldest first, at most one for each row. */
  #fresh() {
    const { events, eventCount } = this.#model;
    const news = events.slice(-Math.min(events.length, eventCount - this.#seen) || events.length);
    const wanted = this.#wanted();
    const fresh = [];
    if (eventCount > this.#seen) {
      for (let index = news.length - 1; index >= 0 && fresh.length < ROWS; index--) if (wanted(news[index])) fresh.push(news[index]);
    }
    this.#seen = eventCount;
    return fresh.reverse();
  }

  #wanted() {
    const channels = new Set([...document.querySelectorAll('.chips input[name="channel"]:checked')].map((box) => box.value));
    const pieces = byId("events-text").checked;
    const internals = byId("events-internals").checked;
    const text = byId("events-filter").value.trim().toLowerCase();
    return (event) =>
      channels.has(event.channel) &&
      (isPiece(event.type) ? pieces : internals || !isInternal(event.type)) &&
      (text === "" || `${event.type} ${event.session} ${event.line}`.toLowerCase().includes(text));
  }

  #again() {
    byId("events").replaceChildren();
    this.#seen = 0;
    this.#app.mark("events");
  }
}

const isInternal = (type) => displayOf(type)?.is_internal ?? !TROUBLE.has(type);

const row = () => h("li", { class: "event" }, ...["at", "type", "of", "line"].map((name) => h("span", { class: name })));

function fill(element, event) {
  if (element.childElementCount !== 4) return fill(replaced(element), event);
  const [at, type, of, line] = element.children;
  element.dataset.channel = event.channel;
  element.dataset.session = event.session;
  element.dataset.tone = toneOf(event);
  setAttribute(element, "title", `seq ${event.seq}${event.run ? `, run ${event.run}` : ""}`);
  setText(at, clock(event.ts));
  setText(type, event.type);
  setText(of, event.session);
  setText(line, event.line);
  return element;
}

/** A row in place of a line that is no event. */
function replaced(element) {
  element.remove();
  return row();
}

function toneOf({ type, line }) {
  return type === "done" && /^(error|timeout)/.test(line) ? "bad" : (displayOf(type)?.tone ?? "");
}
