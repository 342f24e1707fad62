// Lists that arrow keys move through: one of their buttons can be tabbed to, the others are reached from there.

const STEPS = { ArrowDown: "down", ArrowUp: "up", ArrowRight: "right", ArrowLeft: "left", Home: "home", End: "end" };

/** Make a list's main buttons (`[data-item]`) one stop of the tab key; call `settle` after each redraw. */
export class ItemList {
  #root;

  constructor(root) {
    this.#root = root;
    root.addEventListener("keydown", this.#move);
    root.addEventListener("focusin", (event) => this.#stopAt(event.target.closest("[data-item]")));
  }

  /** Exactly one button can be tabbed to, whatever has come and gone. */
  settle() {
    const items = this.#items();
    const current = items.find((item) => item.tabIndex === 0) ?? items[0];
    for (const item of items) if (item !== current && item.tabIndex !== -1) item.tabIndex = -1;
    if (current !== undefined) current.tabIndex = 0;
  }

  /** Put the focus on the button that can be tabbed to. */
  focus() {
    this.#items().find((item) => item.tabIndex === 0)?.focus();
  }

  #items() {
    return [...this.#root.querySelectorAll("[data-item]")];
  }

  #stopAt(item) {
    if (item === null || item === undefined) return;
    for (const other of this.#items()) other.tabIndex = other === item ? 0 : -1;
  }

  #move = (event) => {
    const step = STEPS[event.key];
    const item = event.target.closest?.("[data-item]");
    if (step === undefined || !item || event.ctrlKey || event.metaKey || event.altKey) return;
    const items = this.#items();
    const next = items[target(items, items.indexOf(item), step)];
    event.preventDefault();
    next?.focus();
  };
}

/** Where a key leads: to the left and right the next one, up and down the nearest in the row above or below. */
function target(items, from, step) {
  if (step === "home") return 0;
  if (step === "end") return items.length - 1;
  if (step === "left" || step === "right") return Math.min(items.length - 1, Math.max(0, from + (step === "right" ? 1 : -1)));
  const sign = step === "down" ? 1 : -1;
  const here = items[from].getBoundingClientRect();
  for (let index = from + sign; items[index] !== undefined; index += sign) {
    const there = items[index].getBoundingClientRect();
    const isOtherRow = Math.abs(there.top - here.top) > 2;
    if (isOtherRow && Math.abs(there.left - here.left) < here.width / 2 + 1) return index;
  }
  return from;
}
