// Profiles: which kinds of workers there are, whether their starts fail, and what their agents' turns have cost.

import { byId, h, reconcile, setAttribute, setText } from "./dom.js";
import { plural, span } from "./format.js";
import { Spent } from "./spent.js";

const MOST = 100;

export class ProfilesView {
  #model;

  constructor(model) {
    this.#model = model;
  }

  draw() {
    const { status, sessions } = this.#model;
    if (status === null) return;
    const shown = status.profiles.slice(0, MOST);
    const spent = new Map(shown.map(({ agent }) => [agent, new Spent()]));
    for (const session of sessions.values()) if (session.spent.turns > 0) spent.get(session.agent)?.add(session.spent);
    byId("profiles-panel").hidden = shown.length === 0;
    const broken = status.profiles.filter(({ breaker }) => breaker !== "closed").length;
    setText(byId("profiles-count"), broken > 0 ? `${status.profiles.length}, ${broken} not started` : String(status.profiles.length));
    reconcile(byId("profiles"), shown, (each) => each.profile, create, (element, each) => update(element, each, spent.get(each.agent)));
  }
}

function create({ agent, role, profile }) {
  const top = h("div", { class: "process-top" }, h("span", { class: "dot" }), h("span", { class: "who", text: `${agent}/${role}` }), h("span", { class: "why" }), h("span", { class: "end" }));
  return h("li", { class: "process", title: `profile ${profile}` }, top, h("p", { class: "profile-foot", hidden: true }));
}

function update(element, { live, starting, warm, min, waiting, breaker, retry_in: retry, last_error: error }, spent) {
  const isBroken = breaker !== "closed";
  setAttribute(element, "data-state", isBroken ? "failed" : live > 0 ? "running" : "off");
  const parts = [plural(live, "worker"), starting > 0 && `${starting} starting`, warm > 0 && `${warm} warm`, min > 0 && `at least ${min}`, waiting > 0 && `${waiting} waiting`];
  setText(element.querySelector(".why"), parts.filter(Boolean).join(" · "));
  setText(element.querySelector(".end"), isBroken ? `breaker ${breaker.replace("_", " ")}${retry > 0 ? `, next try in ${span(Math.ceil(retry))}` : ""}` : spent.text);
  const foot = element.querySelector(".profile-foot");
  foot.hidden = !error;
  setText(foot, error ?? "");
}
