// What was written to sessions and not sent, or was refused. Pure: no element, no clock, no network.

const KEPT = 200; // sessions; what was written last stays

export class Drafts {
  #texts = new Map();

  /** Keep what stands in a session's field; an empty text is forgotten. */
  keep(key, text) {
    this.#texts.delete(key);
    if (text !== "") this.#texts.set(key, text);
    if (this.#texts.size > KEPT) this.#texts.delete(this.#texts.keys().next().value);
  }

  /** Take out what was kept; empty where nothing was. */
  take(key) {
    const text = this.#texts.get(key) ?? "";
    this.#texts.delete(key);
    return text;
  }
}
