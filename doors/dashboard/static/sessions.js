// The list of sessions, each with its last line; a filter.

import { byId, h, reconcile, setAttribute, setText } from "./dom.js";
import { age, plural } from "./format.js";
import { ItemList } from "./lists.js";
import { askForPrompt } from "./new_prompt.js";

const MOST = 200;
const BADGES = new Set(["approval", "failed"]);
const TAIL = 44; // characters of an answer that grows

export class SessionsView {
  #model;
  #app;
  #list;

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
    this.#list = new ItemList(byId("sessions"));
    byId("sessions-filter").addEventListener("input", () => app.mark("sessions"));
    byId("new-session").addEventListener("click", () => askForPrompt(app));
  }

  draw() {
    const wanted = byId("sessions-filter").value.trim().toLowerCase();
    const all = this.#model.sortedSessions();
    const found = wanted === "" ? all : all.filter((session) => `${session.key} ${session.agent}/${session.role}`.toLowerCase().includes(wanted));
    const shown = found.slice(0, MOST);
    const waiting = new Map((this.#model.status?.gateway.lanes.sessions ?? []).map((lane) => [lane.session, lane.waiting]));
    const now = this.#app.now();
    reconcile(byId("sessions"), shown, (session) => session.key, (session) => this.#create(session), (element, session) =>
      update(element, session, { now, waiting: waiting.get(session.key) ?? 0, waits: this.#model.waitsFor(session.key), state: this.#model.shownState(session.key), open: this.#app.openKey() }),
    );
    this.#list.settle();
    setText(byId("sessions-count"), String(all.length));
    byId("sessions-none").hidden = all.length > 0 || !this.#model.isListed;
    byId("sessions-more").hidden = found.length <= shown.length;
    setText(byId("sessions-more"), `${plural(found.length - shown.length, "more session")}; filter to see them`);
  }

  focus() {
    this.#list.focus();
  }

  #create(session) {
    const top = h("span", { class: "session-top" }, h("span", { class: "dot" }), h("span", { class: "key" }), h("span", { class: "badge", hidden: true }), h("span", { class: "when" }));
    const open = () => this.#app.openSession(session.key);
    return h("li", {}, h("button", { type: "button", class: "session", data: { item: "" }, tabindex: "-1", on: { click: open } }, top, h("span", { class: "last" })));
  }
}

/** Of an answer that is under way the end, which is what is new; of what is over the beginning. */
function lastLine(session) {
  const line = session.line.trimEnd().split("\n").at(-1);
  if (session.live === "" || line.length <= TAIL) return line;
  const tail = line.slice(-TAIL);
  return `…${tail.slice(tail.indexOf(" ") + 1)}`;
}

function update(element, session, { now, waiting, waits, state, open }) {
  const button = element.firstElementChild;
  setAttribute(button, "data-state", state);
  setAttribute(button, "aria-current", session.key === open ? "true" : null);
  setText(element.querySelector(".key"), session.key);
  const badge = element.querySelector(".badge");
  const text = BADGES.has(state) ? state : waiting > 0 ? `${waiting} waiting` : "";
  badge.hidden = text === "";
  setText(badge, text);
  const place = waits?.place ? `waiting, place ${waits.place}` : state;
  setText(element.querySelector(".when"), state === "working" || state === "waiting" ? place : age(now - session.updatedAt));
  setText(element.querySelector(".last"), (waits?.why ?? lastLine(session)) || `${session.agent}/${session.role}`.replace(/^\/$/, "–"));
}
