// Commands that run in the background, of all sessions: the end of what they say, and how to end them.

import { byId, h, reconcile, setAttribute, setText } from "./dom.js";
import { confirm, show } from "./dialogs.js";
import { age, short } from "./format.js";

const MOST_SESSIONS = 24;
const EVERY = 5_000;
const TAIL_EVERY = 2_000;

export class BackgroundView {
  #model;
  #app;
  #found = [];
  #asking = false;
  #askedAt = 0;

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
  }

  /** Ask the workers again, unless that is going on already, or was just done and nothing has changed. */
  async refresh({ now = false } = {}) {
    const sessions = this.#sessions();
    const isDue = performance.now() - this.#askedAt >= EVERY;
    if (this.#asking || !(now || isDue)) return;
    if (sessions.length === 0 && this.#found.length === 0) return;
    this.#asking = true;
    const lists = await Promise.all(sessions.map((session) => this.#list(session)));
    this.#found = lists.flat();
    this.#asking = false;
    this.#askedAt = performance.now();
    this.#app.mark("background");
  }

  draw() {
    reconcile(byId("background"), this.#found, (each) => `${each.session}\n${each.session_id}`, (each) => this.#create(each), (element, each) => update(element, each, this.#app.now()));
    byId("background-none").hidden = this.#found.length > 0;
    const running = this.#found.filter((each) => each.status === "running").length;
    setText(byId("background-count"), running > 0 ? String(running) : "");
  }

  #sessions() {
    const workers = this.#model.status?.workers ?? [];
    return workers.filter((worker) => worker.background > 0 && worker.session !== null).map((worker) => worker.session).slice(0, MOST_SESSIONS);
  }

  /** One session's commands; none where its worker cannot be asked just now, which the next look will tell. */
  async #list(session) {
    const answer = await this.#app.ask("process", { session, action: "list" });
    return (answer?.sessions ?? []).map((each) => ({ session, ...each }));
  }

  #create({ session, session_id: id, command }) {
    const button = (label, act) => h("button", { type: "button", class: "button small", text: label, "aria-label": `${label} of ${id}`, on: { click: act } });
    const kill = h("button", { type: "button", class: "button small danger", text: "Kill", "aria-label": `Kill ${id}`, on: { click: () => this.#kill(session, id, command) } });
    const open = h("button", { type: "button", class: "link-button who", text: session, on: { click: () => this.#app.openSession(session) } });
    const line = h("div", { class: "process-top" }, h("span", { class: "dot" }), h("span", { class: "command" }), h("span", { class: "end" }));
    const foot = h("div", { class: "process-foot" }, open, h("code", { class: "tail" }), button("Output", () => this.#tail(session, id, command)), kill);
    return h("li", { class: "process" }, line, foot);
  }

  async #kill(session, id, command) {
    if (!(await confirm(`Kill ${id}?`, `The command and everything it has started end now: ${short(command, 200)}`, "Kill"))) return;
    await this.#app.act("process", { session, action: "kill", params: { session_id: id } }, `${id} was killed`);
    await this.refresh({ now: true });
  }

  /** Its output, kept up to date while it is looked at. */
  async #tail(session, id, command) {
    const pre = h("pre", { class: "output", tabindex: "0", role: "region", "aria-label": `Output of ${id}` });
    let asking = false;
    const look = async () => {
      if (asking || document.hidden) return;
      asking = true;
      const answer = await this.#app.ask("process", { session, action: "log", params: { session_id: id } });
      asking = false;
      const isAtEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
      setText(pre, answer?.text ?? "It cannot be asked: its worker is gone, or has forgotten it.");
      if (isAtEnd) pre.scrollTop = pre.scrollHeight;
    };
    const timer = setInterval(look, TAIL_EVERY);
    look();
    const chosen = await show(`Output of ${id}`, [h("p", { class: "hint mono", text: short(command, 300) }), pre], [
      { label: "Close", value: "close", focus: true },
      { label: "Kill", value: "kill", tone: "danger" },
    ]);
    clearInterval(timer);
    if (chosen === "kill") await this.#kill(session, id, command);
  }
}

/** "failed timed out", "completed 0". */
function outcome(each) {
  if (each.timed_out) return `${each.status}: timed out`;
  return each.exit_code === undefined || each.exit_code === null ? each.status : `${each.status} ${each.exit_code}`;
}

function update(element, each, now) {
  setAttribute(element, "data-state", each.status);
  setText(element.querySelector(".command"), each.command);
  const ended = each.status !== "running";
  setText(element.querySelector(".end"), ended ? outcome(each) : age(now - each.started_at));
  setText(element.querySelector(".tail"), short((each.tail ?? "").trimEnd().split("\n").at(-1) || "(no output yet)", 120));
  setAttribute(element, "title", `${each.session_id}, pid ${each.pid}, in ${each.cwd}`);
  element.querySelector(".danger").hidden = ended;
}
