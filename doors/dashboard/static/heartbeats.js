// How each agent's heartbeat stands, where the supervisor has any.

import { byId, h, reconcile, setAttribute, setText } from "./dom.js";
import { span } from "./format.js";

export class HeartbeatsView {
  #model;
  #app;

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
  }

  /** Ask again; a supervisor without heartbeats says nothing of them in its status. */
  async refresh() {
    if (this.#model.status?.gateway.autonomy === undefined) return;
    this.#model.heartbeats = (await this.#app.ask("heartbeat.status")) ?? this.#model.heartbeats;
    this.#app.mark("heartbeats");
  }

  draw() {
    const beats = (this.#model.heartbeats ?? []).filter((beat) => beat.every > 0 || beat.last_beat !== null);
    byId("heartbeats-panel").hidden = beats.length === 0;
    setText(byId("heartbeats-count"), String(beats.length));
    reconcile(byId("heartbeats"), beats, (beat) => beat.agent, (beat) => this.#create(beat), (element, beat) => update(element, beat, this.#app.now()));
  }

  #create({ agent }) {
    const beat = () => this.#app.act("heartbeat.run", { agent }, `${agent} has had its heartbeat`, 600_000);
    const now = h("button", { type: "button", class: "button small", text: "Beat now", "aria-label": `Beat now: ${agent}`, on: { click: beat } });
    return h("li", { class: "row beat" }, h("span", { class: "dot" }), h("span", { class: "who" }), h("span", { class: "why" }), h("span", { class: "end" }), now);
  }
}

function update(element, beat, now) {
  const last = beat.last_beat;
  setAttribute(element, "data-state", beat.running.length > 0 ? "running" : last?.outcome === "failed" ? "failed" : beat.every > 0 || beat.wake ? "idle" : "off");
  setText(element.querySelector(".who"), beat.agent);
  const came = last === null ? "no beat yet" : [last.outcome, last.error || last.text].filter(Boolean).join(": ");
  setText(element.querySelector(".why"), beat.running.length > 0 ? "beating now" : came);
  setText(element.querySelector(".end"), beat.next_due === null ? "" : `in ${span(Math.max(0, Math.round(beat.next_due - now)))}`);
  setAttribute(element, "title", beat.warning || null);
}
