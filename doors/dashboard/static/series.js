// Numbers over time in a fixed number of equal steps, and the line that shows them.

import { setAttribute, svg } from "./dom.js";

/** Sums and counts of the last `steps` spans of `seconds` each; what is older falls out. */
export class Series {
  #steps;
  #seconds;
  #sums;
  #counts;
  #last = -Infinity;

  constructor(steps = 60, seconds = 2) {
    this.#steps = steps;
    this.#seconds = seconds;
    this.#sums = new Float64Array(steps);
    this.#counts = new Float64Array(steps);
  }

  /** Note a value at a Unix time in seconds. */
  add(at, value = 1) {
    const step = Math.floor(at / this.#seconds);
    this.#advance(step);
    if (step <= this.#last - this.#steps) return;
    this.#sums[step % this.#steps] += value;
    this.#counts[step % this.#steps] += 1;
  }

  /** Sums, oldest first, the step that `now` is in being the last. */
  sums(now) {
    return this.#read(now, (slot) => this.#sums[slot]);
  }

  /** Means; null where there was nothing. */
  means(now) {
    return this.#read(now, (slot) => (this.#counts[slot] > 0 ? this.#sums[slot] / this.#counts[slot] : null));
  }

  #advance(step) {
    if (step <= this.#last) return;
    const first = Math.max(this.#last + 1, step - this.#steps + 1);
    for (let each = first; each <= step; each++) this.#sums[each % this.#steps] = this.#counts[each % this.#steps] = 0;
    this.#last = step;
  }

  #read(now, look) {
    this.#advance(Math.floor(now / this.#seconds));
    return Array.from({ length: this.#steps }, (_, index) => look((this.#last - this.#steps + 1 + index) % this.#steps));
  }
}

const WIDTH = 120;
const HEIGHT = 28;

/** A sparkline in an `<svg>`: a line with its area; a value without neighbours is a dot. */
export class Spark {
  #line = svg("path", { class: "line" });
  #area = svg("path", { class: "area" });

  constructor(element) {
    setAttribute(element, "viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    setAttribute(element, "preserveAspectRatio", "none");
    element.append(this.#area, this.#line);
  }

  /** `values` from old to new, null where there is none; from 0 up to the largest one. */
  draw(values) {
    const top = Math.max(...values.map((value) => value ?? 0)) || 1;
    const step = WIDTH / (values.length - 1);
    const points = values.map((value, index) => (value === null ? null : [index * step, HEIGHT - 2 - (value / top) * (HEIGHT - 4)]));
    const known = points.filter((point) => point !== null).map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`);
    setAttribute(this.#line, "d", known.length > 0 ? `M${known.join("L")}${known.length === 1 ? "h0.1" : ""}` : "");
    const ends = points.filter((point) => point !== null);
    const area = ends.length > 1 ? `M${ends[0][0].toFixed(1)} ${HEIGHT}L${known.join("L")}L${ends.at(-1)[0].toFixed(1)} ${HEIGHT}Z` : "";
    setAttribute(this.#area, "d", area);
  }
}
