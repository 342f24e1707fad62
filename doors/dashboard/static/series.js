// Numbers over time in a fixed number of equal steps. Pure.

export const STEPS = 60;
export const STEP = 2; // seconds

/** Sums and counts of the last `steps` spans of `seconds` each; what is older falls out. */
export class Series {
  #steps;
  #seconds;
  #sums;
  #counts;
  #last = -Infinity;

  constructor(steps = STEPS, seconds = STEP) {
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
