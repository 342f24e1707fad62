// The stream of events, kept alive: from a bookmark on, with back-off where the network or the supervisor is gone.

import { ApiError } from "./api.js";
import { SseParser } from "./sse.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const SILENCE = 40_000; // the server says something every 15 s
const SLICE = 12; // milliseconds of events in a row before the page may draw

/** How long to wait before try number `attempt` (from 0), in milliseconds: doubling, a quarter of it by chance. */
export function backOff(attempt, chance = Math.random()) {
  const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.min(attempt, 10));
  return Math.round(wait * (0.75 + chance / 4));
}

/**
 * `open(since, signal)` answers with a fetch Response; `take(events)` gets lists of them, each event once and in order;
 * `tell({state, wait?})` hears `connecting`, `live`, `lost` (with milliseconds until the next try) and `refused`;
 * `gap()` hears that events after the bookmark are gone.
 */
export class EventStream {
  #ports;
  #bookmark = null;
  #attempt = 0;
  #abort = null;
  #wake = null;
  #over = false;

  constructor(ports) {
    this.#ports = ports;
  }

  /** The seq of the last event that was handed out. */
  get bookmark() {
    return this.#bookmark;
  }

  /** Go on until `stop`; begins after the event `since`, or with what comes next where it is null. */
  async run(since) {
    this.#bookmark = since;
    addEventListener("online", this.retry);
    addEventListener("offline", this.#drop);
    while (!this.#over) {
      this.#ports.tell({ state: "connecting" });
      await this.#connect();
      if (!this.#over) await this.#pause();
    }
    removeEventListener("online", this.retry);
    removeEventListener("offline", this.#drop);
  }

  /** Try again now, if it is waiting to. */
  retry = () => this.#wake?.();

  /** End for good. */
  stop() {
    this.#over = true;
    this.#drop();
    this.retry();
  }

  #drop = () => this.#abort?.abort();

  async #connect() {
    const abort = (this.#abort = new AbortController());
    const watch = new Watchdog(() => abort.abort());
    try {
      const response = await this.#ports.open(this.#bookmark, abort.signal);
      if (response.status === 401 || response.status === 403) {
        this.#over = true;
        this.#ports.tell({ state: "refused", status: response.status });
      } else if (response.ok) await this.#read(response.body.getReader(), watch);
    } catch (error) {
      if (!(error instanceof ApiError)) console.error("events were passed over", error);
      // else the connection could not be made: that is what the next try is for
    } finally {
      watch.stop();
      abort.abort();
    }
  }

  async #read(reader, watch) {
    const parser = new SseParser();
    const decoder = new TextDecoder();
    let begun = performance.now();
    for (;;) {
      const { done, value } = await reader.read().catch(() => ({ done: true })); // lost in the middle is over, too
      if (done) return;
      watch.touch();
      for (const message of parser.push(decoder.decode(value, { stream: true }))) this.#take(message);
      if (performance.now() - begun > SLICE) {
        await new Promise((resolve) => setTimeout(resolve));
        begun = performance.now();
      }
    }
  }

  #take(message) {
    const data = JSON.parse(message.data);
    if (message.event === "open") {
      this.#attempt = 0;
      if (!data.complete) this.#ports.gap();
      this.#bookmark = Math.min(this.#bookmark ?? data.head, data.head); // it may be another supervisor's by now
      this.#ports.tell({ state: "live" });
    } else if (message.event === "end") this.#bookmark = data.bookmark;
    else {
      const bookmark = this.#bookmark;
      const news = bookmark !== null && data.length > 0 && data[0].seq <= bookmark ? data.filter((event) => event.seq > bookmark) : data;
      if (news.length > 0) {
        this.#bookmark = news[news.length - 1].seq;
        this.#ports.take(news);
      }
    }
  }

  #pause() {
    const wait = backOff(this.#attempt++);
    this.#ports.tell({ state: "lost", wait });
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** Calls `bark` when it was not touched for too long: a connection may be dead without either side noticing. */
class Watchdog {
  #bark;
  #timer;

  constructor(bark) {
    this.#bark = bark;
    this.touch();
  }

  touch() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#bark, SILENCE);
  }

  stop() {
    clearTimeout(this.#timer);
  }
}
