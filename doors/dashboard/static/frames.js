// Drawing once a frame at most, and no longer than a frame may take: views say that they are stale, not when to draw.

const BUDGET = 10; // milliseconds of drawing in one frame; what is left is drawn in the next one

/** Views by name; `mark(name)` has one drawn with the next frame that is due to it. */
export class Frames {
  #views = new Map();
  #stale = new Set();
  #asked = false;

  /** `every`: milliseconds that lie at least between two drawings. */
  add(name, draw, every = 0) {
    this.#views.set(name, { draw, every, due: 0 });
  }

  /** These views no longer show what is so. */
  mark(...names) {
    for (const name of names) if (this.#views.has(name)) this.#stale.add(name);
    this.#ask();
  }

  #ask() {
    if (this.#asked || this.#stale.size === 0) return;
    this.#asked = true;
    const wait = Math.min(...[...this.#stale].map((name) => this.#views.get(name).due)) - performance.now();
    if (wait > 20) setTimeout(() => requestAnimationFrame(this.#draw), wait);
    else requestAnimationFrame(this.#draw);
  }

  #draw = () => {
    this.#asked = false;
    const begun = performance.now();
    for (const name of [...this.#stale]) {
      const view = this.#views.get(name);
      if (view.due > begun) continue;
      this.#stale.delete(name);
      view.due = begun + view.every;
      view.draw();
      if (performance.now() - begun > BUDGET) break;
    }
    this.#ask();
  };
}
