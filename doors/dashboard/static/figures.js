// The figures at the top: how many workers, how long things take, how much happens.

import { Chart } from "./chart.js";
import { byId, h, setAttribute, setText } from "./dom.js";
import { count, percent, plural, rate, size, span } from "./format.js";
import { STEP, STEPS } from "./series.js";

const STATES = ["leased", "idle", "starting", "stopping"];
const FREE = "free";
const TONES = { running: "good", paused: "warn", draining: "warn", closed: "bad" };
const WINDOW = 60; // seconds that rates are averaged over
const FORMATS = {
  wait: span,
  turn: span,
  through: (value) => `${plural(value, "turn")} in ${STEP} s`,
  events: (value) => `${rate(value / STEP)} / s`,
  memory: size,
};

export class FiguresView {
  #model;
  #now;
  #charts = {};
  #stack;

  constructor(model, now) {
    this.#model = model;
    this.#now = now;
    for (const [name, format] of Object.entries(FORMATS)) this.#charts[name] = new Chart(byId(`f-${name}`).querySelector(".chart"), { steps: STEPS, step: STEP, format });
    this.#stack = [...STATES, FREE].map((state) => h("span", { data: { state } }));
    byId("f-workers").querySelector(".stack").append(...this.#stack);
  }

  draw() {
    const { status, series } = this.#model;
    if (status === null) return;
    const now = this.#now();
    this.#head(status);
    this.#workers(status);
    this.#latency("wait", status.latency.acquire, series.wait.means(now));
    this.#latency("turn", status.latency.turn, series.turn.means(now));
    const turns = series.turns.sums(now);
    const events = series.events.sums(now);
    this.#put("through", `${rate(recent(turns, WINDOW))} / min`, `${plural(status.gateway.runs, "run")} under way`, turns);
    this.#put("events", `${rate(recent(events, 10) / 10)} / s`, `${count(status.gateway.events.events + status.gateway.events.text_pieces)} since the start`, events);
    const rss = status.workers.reduce((sum, worker) => sum + (worker.rss ?? 0), 0);
    const cpu = [...this.#model.load.values()].reduce((sum, share) => sum + share, 0);
    this.#put("memory", size(rss), `${percent(cpu)} of a processor`, series.memory.means(now));
  }

  #head(status) {
    const { mode } = status.pool;
    setText(byId("mode"), mode);
    setAttribute(byId("mode"), "data-tone", TONES[mode] ?? "quiet");
    setText(byId("about"), `up ${span(status.supervisor.uptime)} · pid ${status.supervisor.pid} · v${status.supervisor.version}`);
    const halted = mode === "paused" || mode === "draining";
    setText(byId("pause"), halted ? "Resume" : "Pause");
    byId("drain").hidden = halted;
    const { store } = status.gateway;
    const notice = byId("notice");
    notice.hidden = !store.degraded;
    if (store.degraded) setText(notice, `The store cannot be written: ${store.last_error}. ${plural(store.rows_waiting, "row")} are held in memory, ${store.lost} lost.`);
  }

  #workers({ pool }) {
    const element = byId("f-workers");
    setText(element.querySelector(".value"), `${pool.total} / ${pool.max}`);
    const parts = STATES.filter((state) => pool[state] > 0).map((state) => `${pool[state]} ${state}`);
    setText(element.querySelector(".sub"), parts.join(" · ") || "none alive");
    const shares = [...STATES.map((state) => pool[state]), Math.max(0, pool.max - pool.total)];
    this.#stack.forEach((bar, index) => {
      bar.hidden = shares[index] === 0;
      bar.style.setProperty("flex-grow", shares[index]);
    });
  }

  #latency(name, latency, values) {
    const known = latency.count > 0;
    this.#put(name, known ? span(latency.p50) : "–", known ? `median · p99 ${span(latency.p99)}` : "nothing yet", values);
  }

  #put(name, value, sub, values) {
    const element = byId(`f-${name}`);
    setText(element.querySelector(".value"), value);
    setText(element.querySelector(".sub"), sub);
    this.#charts[name].draw(values);
  }
}

/** The sum over about the last `seconds`, the step that is not over included. */
const recent = (sums, seconds) => sums.slice(-Math.ceil(seconds / STEP)).reduce((sum, value) => sum + value, 0);
