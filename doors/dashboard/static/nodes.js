// The machines of the cluster: what each has to do, why one is not there, and how to empty it.

import { byId, h, reconcile, setAttribute, setText } from "./dom.js";
import { confirm } from "./dialogs.js";
import { plural, size, span } from "./format.js";

const MOST = 200;
const EVERY = 2_000;
const STATES = ["up", "draining", "lost", "refused"];
const DOTS = { up: "running", draining: "waiting", lost: "failed", refused: "failed" };
const HERE = "this machine";

export class NodesView {
  #model;
  #app;
  #found = [];
  #asking = false;
  #askedAt = 0;

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
  }

  /** Ask again where the status speaks of other machines, unless that was just done. */
  async refresh({ now = false } = {}) {
    const isDue = now || performance.now() - this.#askedAt >= EVERY;
    if (this.#asking || !isDue || (this.#model.status?.groups ?? []).length === 0) return;
    this.#asking = true;
    this.#found = (await this.#app.ask("nodes.list")) ?? this.#found;
    this.#asking = false;
    this.#askedAt = performance.now();
    this.#app.mark("nodes");
  }

  draw() {
    const shown = this.#found.slice(0, MOST);
    byId("nodes-panel").hidden = shown.length === 0;
    setText(byId("nodes-count"), counted(this.#found));
    reconcile(byId("nodes"), shown, (node) => `${node.name}\n${node.state}`, (node) => this.#create(node), update);
  }

  #create({ name, state }) {
    const part = (key) => h("span", { class: key });
    const top = h("div", { class: "process-top" }, h("span", { class: "dot" }), part("who"), part("state"));
    const act = name !== "" && { up: ["Drain", () => this.#drain(name)], draining: ["Resume", () => this.#resume(name)] }[state];
    if (act) top.append(h("button", { type: "button", class: "button small", text: act[0], "aria-label": `${act[0]} node ${name}`, on: { click: act[1] } }));
    return h("li", { class: "process node" }, top, h("p", { class: "node-figures" }), h("p", { class: "profile-foot", hidden: true }));
  }

  async #drain(name) {
    const text = "Nothing more is started on it. Idle workers end now, others when their turns do; their conversations go on elsewhere. Resume undoes it.";
    if (await confirm(`Drain node ${name}?`, text, "Drain")) await this.#act("nodes.drain", name, `Node ${name} is being drained`);
  }

  #resume(name) {
    return this.#act("nodes.resume", name, `Node ${name} takes workers again`);
  }

  async #act(method, node, done) {
    await this.#app.act(method, { node }, done);
    await this.refresh({ now: true });
  }
}

function update(element, node) {
  const part = (name) => element.querySelector(`.${name}`);
  setAttribute(element, "data-state", DOTS[node.state] ?? "off");
  setText(part("who"), node.name || HERE);
  setText(part("state"), stateOf(node));
  const figures = figuresOf(node);
  part("node-figures").hidden = figures === "";
  setText(part("node-figures"), figures);
  part("profile-foot").hidden = !node.note;
  setText(part("profile-foot"), node.note ?? "");
}

function stateOf({ state, until }) {
  if (until === null) return state;
  return state === "lost" ? `lost, fenced in ${span(Math.ceil(until))}` : `${state}, ${span(Math.ceil(until))} left`;
}

function figuresOf({ group, engine, slots, used: taken, load, memory, memory_free: free, rtt }) {
  const used = memory !== null && free !== null && `${size(Math.max(0, memory - free))} of ${size(memory)}`;
  const parts = [slots > 0 && `${taken} of ${plural(slots, "slot")}`, group && `group ${group}`, engine, load !== null && `load ${load.toFixed(1)}`, used, rtt !== null && `round trip ${span(rtt)}`];
  return parts.filter(Boolean).map((part) => part.replaceAll(" ", "\u00a0")).join(" · ");
}

function counted(nodes) {
  const sums = STATES.map((state) => [state, nodes.filter((node) => node.state === state).length]).filter(([, number]) => number > 0);
  const more = nodes.length > MOST ? `, the first ${MOST} shown` : "";
  return `${sums.map(([state, number]) => `${number} ${state}`).join(", ")}${more}`;
}
