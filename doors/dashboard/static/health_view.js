// How the pool is, in two words at the top; a click shows each check and what to do.

import { show } from "./dialogs.js";
import { byId, h, reconcile, setAttribute, setText } from "./dom.js";
import { judge, sumUp } from "./health.js";

const TONES = { ok: "good", warning: "warn", problem: "bad" };

export class HealthView {
  #model;
  #app;
  #agents = [];
  #list = h("ul", { class: "checks" });

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
    byId("health").addEventListener("click", () => this.open());
  }

  /** Ask what is known of the agents' programs. */
  async refresh() {
    this.#agents = (await this.#app.ask("agents.list")) ?? this.#agents;
    this.#app.mark("health");
  }

  draw() {
    const { status, heartbeats } = this.#model;
    if (status === null) return;
    const checks = judge(status, this.#agents, heartbeats);
    const { text, tone } = sumUp(checks);
    setText(byId("health"), text);
    setAttribute(byId("health"), "data-tone", tone);
    setAttribute(byId("health"), "aria-label", `Health: ${text}`);
    if (this.#list.isConnected) this.#drawList(checks);
  }

  open() {
    const { status, heartbeats } = this.#model;
    this.#drawList(judge(status, this.#agents, heartbeats));
    const rest = h("p", { class: "hint" }, "The machine itself is checked in a terminal, since that starts programs: ", h("code", { text: "pool doctor" }));
    this.refresh();
    return show("Health", [this.#list, rest], [{ label: "Close", value: "close", focus: true }], "wide");
  }

  #drawList(checks) {
    reconcile(this.#list, checks, (check) => check.name, create, update);
  }
}

function create({ name }) {
  const part = (of) => h("span", { class: of });
  return h("li", { class: "check-row" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", { class: "check-name", text: name }), part("verdict sr"), part("found"), part("fix"));
}

function update(element, { verdict, found, fix }) {
  setAttribute(element, "data-tone", TONES[verdict]);
  setText(element.querySelector(".verdict"), `${verdict}: `);
  setText(element.querySelector(".found"), found);
  setText(element.querySelector(".fix"), fix);
  element.querySelector(".fix").hidden = fix === "";
}
