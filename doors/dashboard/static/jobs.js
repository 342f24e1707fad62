// Scheduled jobs: when each is due, how its last run ended; run one now, disable or delete it.

import { byId, h, reconcile, setAttribute, setText } from "./dom.js";
import { confirm, facts, show } from "./dialogs.js";
import { clock, short, span } from "./format.js";

const MOST = 100;

export class JobsView {
  #model;
  #app;
  #page = { jobs: [], total: 0 };

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
  }

  /** Ask again, where the supervisor has jobs or had some the last time. */
  async refresh() {
    const known = this.#model.status?.gateway.autonomy?.cron.jobs ?? 0;
    if (known === 0 && this.#page.total === 0) return;
    this.#page = (await this.#app.ask("cron.list", { limit: MOST })) ?? this.#page;
    this.#app.mark("jobs");
  }

  draw() {
    const { jobs, total } = this.#page;
    byId("jobs-panel").hidden = total === 0;
    setText(byId("jobs-count"), total > jobs.length ? `${total}, the first ${jobs.length} shown` : String(total));
    reconcile(byId("jobs"), jobs, (job) => job.id, (job) => this.#create(job), (element, job) => update(element, job, this.#app.now()));
  }

  #create({ id }) {
    const run = () => this.#act("cron.run", { id }, `${id} runs now`);
    const now = h("button", { type: "button", class: "button small", text: "Run now", "aria-label": `Run now: ${id}`, on: { click: run } });
    const name = h("button", { type: "button", class: "link-button who", text: id, on: { click: () => this.#details(id) } });
    return h("li", { class: "row beat" }, h("span", { class: "dot" }), name, h("span", { class: "why" }), h("span", { class: "end" }), now);
  }

  async #details(id) {
    const job = this.#page.jobs.find((each) => each.id === id);
    if (job === undefined) return;
    const actions = [{ label: "Close", value: "close", focus: true }, { label: "Open session", value: "open" }];
    const isOff = !job.enabled;
    if (job.source === "added") actions.push({ label: isOff ? "Enable" : "Disable", value: "switch" }, { label: "Delete", value: "delete", tone: "danger" });
    const chosen = await show(`Job ${id}`, [facts(describe(job))], actions);
    if (chosen === "open") this.#app.openSession(job.session);
    if (chosen === "switch") await this.#act(isOff ? "cron.enable" : "cron.disable", { id }, `Job ${id} is ${isOff ? "enabled" : "disabled"}`);
    if (chosen === "delete" && (await confirm(`Delete job ${id}?`, "It is not run again. A run that is under way goes on.", "Delete"))) {
      await this.#act("cron.delete", { id }, `Job ${id} is deleted`);
    }
  }

  async #act(method, params, done) {
    await this.#app.act(method, params, done);
    await this.refresh();
  }
}

const ended = ({ last }) => (last === null ? "not run yet" : [last.status, last.error].filter(Boolean).join(": "));

function update(element, job, now) {
  const state = job.running_since !== null ? "running" : job.failures > 0 || job.problem ? "failed" : job.enabled ? "idle" : "off";
  setAttribute(element, "data-state", state);
  setText(element.querySelector(".why"), `${job.when} · ${state === "running" ? "runs now" : (job.problem ?? ended(job))}`);
  setText(element.querySelector(".end"), job.next_due === null ? (job.enabled ? "" : "off") : `in ${span(Math.max(0, Math.round(job.next_due - now)))}`);
}

function describe(job) {
  return [
    ["When", job.when],
    ["Next", job.next_due === null ? "not due by the clock" : `${new Date(job.next_due * 1000).toLocaleDateString()} ${clock(job.next_due)}`],
    ["Last run", ended(job)],
    ["Failures in a row", String(job.failures)],
    ["Agent, mode", `${job.agent}, ${job.mode}`],
    ["Session", job.session || "–"],
    ["From", job.source],
    ["Prompt", short(job.text, 400)],
  ];
}
