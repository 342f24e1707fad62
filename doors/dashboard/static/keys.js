// Keys of the page: single letters outside text fields, and a switch that turns them off.

import { byId, h } from "./dom.js";
import { show } from "./dialogs.js";

const KEY = "pool-letter-keys";
const WORDS = [
  ["?", "This help"],
  ["1  2  3", "Workers, sessions, events"],
  ["↑ ↓ ← →  Home  End", "Move in a list"],
  ["Enter", "Open what has the focus"],
  ["/", "Filter sessions"],
  ["n", "New prompt"],
  ["a", "First call that waits for approval"],
  ["l", "Logs of workers and of the supervisor"],
  ["h", "Health: what may be wrong"],
  ["p", "Hold the events, or let them go on"],
  ["t", "Dark, light, as the system"],
  ["Esc", "Close the dialog or the conversation"],
];

const areOn = () => localStorage.getItem(KEY) !== "off";

/** `actions`: functions by key. Escape works anywhere, the others outside text fields while letters are switched on. */
export function prepareKeys(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || byId("dialog").open) return;
    const action = actions[event.key];
    if (action === undefined || (event.key !== "Escape" && (isWriting(event.target) || !areOn()))) return;
    event.preventDefault();
    action();
  });
}

/** Which keys there are. */
export function showHelp() {
  const box = h("input", { type: "checkbox", id: "letter-keys", on: { change: () => localStorage.setItem(KEY, box.checked ? "on" : "off") } });
  box.checked = areOn();
  const list = h("dl", { class: "keys" }, ...WORDS.flatMap(([key, text]) => [h("dt", {}, ...key.split("  ").map((one) => h("kbd", { text: one }))), h("dd", { text })]));
  const toggle = h("p", { class: "check" }, box, h("label", { for: "letter-keys", text: "Single letters are shortcuts" }));
  const text = h("p", { class: "hint", text: "A click on a worker shows what can be done to it; a click on a session or an event opens the conversation. The same in a terminal: pool top" });
  return show("Keyboard", [list, toggle, text], [{ label: "Close", value: "close", focus: true }]);
}

const isWriting = (element) => element.closest?.("input:not([type=checkbox]), textarea, select") !== null;
