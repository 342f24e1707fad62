// A small chart of numbers over time: a line with its area, what the top and the ends mean, the value under the pointer.

import { h, setAttribute, setText, svg } from "./dom.js";
import { span } from "./format.js";

const WIDTH = 120;
const HEIGHT = 30;

export class Chart {
  #line = svg("path", { class: "line" });
  #area = svg("path", { class: "area" });
  #top = h("span", { class: "top" });
  #rule = h("span", { class: "rule", hidden: true });
  #tip = h("span", { class: "tip", hidden: true });
  #plot;
  #step;
  #format;
  #values = [];
  /** Where the pointer is: a share of the width, null where it is not here. */
  #at = null;

  /** `step`: seconds from one value to the next; `format(value)`: a value in words. */
  constructor(element, { steps, step, format }) {
    this.#step = step;
    this.#format = format;
    const lines = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" });
    lines.append(this.#area, this.#line);
    this.#plot = h("div", { class: "plot" }, this.#top, this.#rule, this.#tip);
    this.#plot.prepend(lines);
    const ends = h("div", { class: "axis" }, h("span", { text: `${span(steps * step).replace(" 0 s", "")} ago` }), h("span", { text: "now" }));
    element.append(this.#plot, ends);
    this.#plot.addEventListener("pointermove", (event) => {
      const { left, width } = this.#plot.getBoundingClientRect();
      this.#point(Math.min(1, Math.max(0, (event.clientX - left) / width)));
    });
    this.#plot.addEventListener("pointerleave", () => this.#point(null));
  }

  /** `values` from old to new, null where there is none; from 0 up to the largest one. A value without neighbours is a dot. */
  draw(values) {
    this.#values = values;
    const most = Math.max(...values.map((value) => value ?? 0));
    const step = WIDTH / (values.length - 1);
    const points = values.map((value, index) => (value === null ? null : [index * step, HEIGHT - 1 - (value / (most || 1)) * (HEIGHT - 3)]));
    const ends = points.filter((point) => point !== null);
    const known = ends.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`);
    setAttribute(this.#line, "d", known.length > 0 ? `M${known.join("L")}${known.length === 1 ? "h0.1" : ""}` : "");
    setAttribute(this.#area, "d", ends.length > 1 ? `M${ends[0][0].toFixed(1)} ${HEIGHT}L${known.join("L")}L${ends.at(-1)[0].toFixed(1)} ${HEIGHT}Z` : "");
    setText(this.#top, most > 0 ? this.#format(most) : "");
    this.#tell();
  }

  #point(at) {
    this.#at = at;
    this.#tell();
  }

  #tell() {
    const isHere = this.#at !== null && this.#values.length > 1;
    this.#rule.hidden = this.#tip.hidden = !isHere;
    this.#top.hidden = isHere;
    if (!isHere) return;
    const index = Math.round(this.#at * (this.#values.length - 1));
    const value = this.#values[index];
    const ago = (this.#values.length - 1 - index) * this.#step;
    setText(this.#tip, `${value === null ? "nothing" : this.#format(value)}, ${ago === 0 ? "now" : `${span(ago)} ago`}`);
    const place = `${(100 * index) / (this.#values.length - 1)}%`;
    this.#rule.style.setProperty("left", place);
    this.#tip.style.setProperty("left", place);
    this.#tip.style.setProperty("transform", `translateX(-${place})`);
  }
}
