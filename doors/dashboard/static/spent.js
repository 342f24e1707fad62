// What turns have cost: time, tokens, money where the agent says so; one turn's, and sums of those that this page has seen. Pure.

import { count, plural, span } from "./format.js";

/** A sum of turns. */
export class Spent {
  turns = 0;
  seconds = 0;
  input = 0;
  output = 0;
  cost = 0;

  /** Add another sum, or one turn: `{seconds, usage}`, each null where it is not known. */
  add({ turns = 1, seconds = null, usage = null, input = 0, output = 0, cost = 0 }) {
    this.turns += turns;
    this.seconds += seconds ?? 0;
    this.input += usage?.input_tokens ?? input;
    this.output += usage?.output_tokens ?? output;
    this.cost += usage?.cost ?? cost;
    return this;
  }

  /** `3 turns seen · 12 s · 1.2 k tokens in, 300 out`; empty where there was none. */
  get text() {
    if (this.turns === 0) return "";
    const tokens = this.input + this.output > 0 ? `${count(this.input)} tokens in, ${count(this.output)} out` : "";
    return [`${plural(this.turns, "turn")} seen`, span(this.seconds), tokens, money(this.cost)].filter(Boolean).join(" · ");
  }
}

/** One turn: `3.4 s · gpt-4.1-mini · 22 tokens in, 2 out`. */
export function turnText({ seconds, usage, model }) {
  const tokens = usage && usage.input_tokens + usage.output_tokens > 0 ? `${count(usage.input_tokens)} tokens in, ${count(usage.output_tokens)} out` : "";
  return [seconds === null ? "" : span(seconds), model, tokens, money(usage?.cost ?? 0)].filter(Boolean).join(" · ");
}

const money = (cost) => (cost > 0 ? `$${cost < 0.01 ? cost.toFixed(4) : cost.toFixed(2)}` : "");
