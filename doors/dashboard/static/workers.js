// Workers as tiles, who waits for one, and what can be done to a worker.

import { byId, h, reconcile, setAttribute, setText } from "./dom.js";
import { confirm, facts, show } from "./dialogs.js";
import { context, percent, plural, short, size, span } from "./format.js";
import { ItemList } from "./lists.js";
import { showLog } from "./logs.js";
import { resumption } from "./summary.js";

const MOST_WAITING = 100;

/** A worker's state as shown: a stopped process is not an idle one. */
const stateOf = (worker) => (worker.suspended ? "suspended" : worker.state);

/** Whether its agent had lost the conversation and was given the end of it. */
const isRefed = ({ report }) => report?.strategy === "refed";

export class WorkersView {
  #model;
  #app;
  #list;

  /** `app`: openSession(key), act(promise, done). */
  constructor(model, app) {
    this.#model = model;
    this.#app = app;
    this.#list = new ItemList(byId("workers"));
    byId("logs").addEventListener("click", () => this.showLog());
  }

  /** The log of a worker, the supervisor's where none is named. */
  showLog(id = "supervisor") {
    return showLog(this.#app, id, new Set(this.#model.status.workers.map((worker) => worker.id)));
  }

  draw() {
    const { status } = this.#model;
    if (status === null) return;
    reconcile(byId("workers"), status.workers, (worker) => worker.id, (worker) => this.#create(worker), (element, worker) => updateTile(element, worker, this.#model.load.get(worker.id)));
    this.#list.settle();
    byId("workers-none").hidden = status.workers.length > 0;
    setText(byId("workers-count"), `${status.pool.leased} of ${status.pool.max} at work`);
    this.#drawWaiting(status);
  }

  #create(worker) {
    const part = (name) => h("span", { class: name });
    const top = h("span", { class: "tile-top" }, h("span", { class: "dot" }), part("id"), part("state"));
    const gauges = h("span", { class: "tile-figures" }, part("rss"), part("cpu"));
    const open = () => this.#details(worker.id);
    const button = h("button", { type: "button", class: "tile", data: { item: "" }, tabindex: "-1", on: { click: open } });
    button.append(top, h("span", { class: "tile-session" }, part("who"), part("node")), h("span", { class: "tile-foot" }, part("age"), gauges));
    return h("li", {}, button);
  }

  #drawWaiting(status) {
    const shown = status.waiting.slice(0, MOST_WAITING);
    reconcile(byId("waiting"), shown, (waiter) => waiter.request, (waiter) => this.#createWaiter(waiter), updateWaiter);
    byId("waiting-none").hidden = shown.length > 0;
    const more = status.waiting.length > shown.length ? `, the first ${shown.length} shown` : "";
    setText(byId("waiting-count"), shown.length > 0 ? `${status.waiting.length}${more}` : "");
  }

  #createWaiter(waiter) {
    const open = h("button", { type: "button", class: "link-button who", on: { click: () => this.#app.openSession(waiter.session) } });
    return h("li", { class: "row" }, h("span", { class: "place" }), open, h("span", { class: "why" }), h("span", { class: "end" }));
  }

  async #details(id) {
    const worker = this.#model.status.workers.find((each) => each.id === id);
    if (worker === undefined) return;
    const actions = [
      { label: "Close", value: "close", focus: true },
      { label: "Log", value: "log" },
      { label: "Recycle", value: "recycle" },
      { label: "Stop now", value: "stop", tone: "danger" },
    ];
    if (worker.session !== null) actions.splice(1, 0, { label: "Open session", value: "open" });
    const chosen = await show(`Worker ${id}`, [facts(describe(worker, this.#model.load.get(id)))], actions);
    if (chosen === "open") this.#app.openSession(worker.session);
    if (chosen === "log") await this.showLog(id);
    if (chosen === "recycle") await this.#recycle(id);
    if (chosen === "stop") await this.#stop(id);
  }

  async #recycle(id) {
    const text = "It is replaced by a fresh process at its next turn boundary. Its conversation goes on there.";
    if (await confirm(`Recycle worker ${id}?`, text, "Recycle")) {
      await this.#app.act("workers.recycle", { worker: id }, `Worker ${id} will be replaced`);
    }
  }

  async #stop(id) {
    const text = "It ends now. A turn that runs on it fails; its conversation goes on with another worker.";
    if (await confirm(`Stop worker ${id}?`, text, "Stop now")) {
      await this.#app.act("workers.stop", { worker: id }, `Worker ${id} is being stopped`);
    }
  }
}

function updateTile(element, worker, load) {
  const part = (name) => element.querySelector(`.${name}`);
  const state = stateOf(worker);
  setAttribute(element.firstElementChild, "data-state", state);
  setText(part("id"), worker.id);
  setText(part("node"), worker.node ?? "");
  setText(part("state"), [state, isRefed(worker) && "refed", worker.retiring && "retiring"].filter(Boolean).join(", "));
  setText(part("who"), worker.session ?? `${worker.agent}/${worker.role}`);
  setAttribute(part("who"), "data-free", worker.session === null ? "" : null);
  setText(part("age"), whatFor(worker));
  setText(part("rss"), size(worker.rss));
  setText(part("cpu"), percent(load));
  const words = [`Worker ${worker.id}`, state, worker.session && `session ${worker.session}`];
  if (worker.node) words.push(`on node ${worker.node}`);
  if (isRefed(worker)) words.push("refed");
  if (worker.turn_age !== null) words.push("in a turn");
  if (worker.background > 0) words.push(`${plural(worker.background, "command")} in the background`);
  setAttribute(element.firstElementChild, "aria-label", words.filter(Boolean).join(", "));
}

/** How long its turn takes, what keeps it without one, or how much it has done. */
function whatFor(worker) {
  if (worker.turn_age !== null) return span(worker.turn_age < 10 ? worker.turn_age : Math.floor(worker.turn_age));
  return worker.background > 0 ? plural(worker.background, "command") : plural(worker.turns, "turn");
}

function updateWaiter(element, waiter) {
  setText(element.querySelector(".place"), String(waiter.position));
  setText(element.querySelector(".who"), short(waiter.session, 60));
  setText(element.querySelector(".why"), waiter.why);
  setText(element.querySelector(".end"), span(waiter.waited));
  setAttribute(element, "title", `priority ${waiter.priority_now.toFixed(1)}`);
}

function describe(worker, load) {
  return [
    ["State", worker.retiring ? `${stateOf(worker)}, retiring: ${worker.retiring}` : stateOf(worker)],
    ["Session", worker.session ?? "–"],
    ["Agent, role", `${worker.agent}, ${worker.role}`],
    ["Turn", worker.turn_age === null ? `none now, ${worker.turns} so far` : `for ${span(worker.turn_age)}, ${worker.turns} before it`],
    ...(worker.node ? [["Node", worker.node]] : []),
    ["Process", `pid ${worker.pid ?? "–"}, ${span(worker.age)} old`],
    ["Memory, processor", `${size(worker.rss)}, ${percent(load)} of one, ${span(worker.cpu)} in all`],
    ["In the background", plural(worker.background, "command")],
    ["Last heard of", worker.last_ping === null ? "–" : `${span(worker.last_ping)} ago`],
    ["Profile", worker.profile],
    ...reported(worker.report ?? {}),
  ];
}

/** What its program says of itself and of its conversation, as far as it does. */
function reported(report) {
  const { program, version, capabilities, options, model, mode, strategy } = report;
  const said = [
    ["Program", [program, version].filter(Boolean).join(" ")],
    ["Can", capabilities?.join(", ")],
    ["Options", options?.join(", ")],
    ["Model, mode", [model, mode].filter(Boolean).join(", ")],
    ["Context", context(report)],
    ["Strategy", strategy && `${strategy}: ${resumption(strategy)}`],
  ];
  return said.filter(([, text]) => text);
}
