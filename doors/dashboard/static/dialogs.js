// The one dialog of the page: questions before something is lost, details, help. Escape closes it.

import { byId, h, setText } from "./dom.js";

/** Gives the open dialog's caller its answer, of the label that was pressed; empty where none was. */
let answer = () => {};

/**
 * Show `body` (elements) under a title. `actions`: `{label, tone?, value, focus?}`; answers with the value of the one
 * that was chosen, null where the dialog was closed otherwise. Only one dialog is open at a time: another one takes its place. `width`: `wide` where lines are long.
 */
export function show(title, body, actions, width = "") {
  const dialog = byId("dialog");
  answer("");
  if (dialog.open) dialog.close();
  setText(byId("dialog-title"), title);
  byId("dialog-body").replaceChildren(...body);
  const buttons = actions.map((action) =>
    h("button", { type: "button", class: `button ${action.tone ?? ""}`, text: action.label, autofocus: action.focus, on: { click: () => dialog.close(action.label) } }),
  );
  byId("dialog-actions").replaceChildren(...buttons);
  dialog.className = width;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    answer = (label) => resolve(actions.find((action) => action.label === label)?.value ?? null);
  });
}

/** Whether it shall be done. The safe answer has the focus. */
export async function confirm(title, text, action) {
  const actions = [
    { label: "Cancel", value: false, focus: true },
    { label: action, value: true, tone: "danger" },
  ];
  return (await show(title, [h("p", { text })], actions)) === true;
}

/** A list of facts: pairs of a name and a text. */
export function facts(pairs) {
  return h("dl", { class: "facts-list" }, ...pairs.flatMap(([name, value]) => [h("dt", { text: name }), h("dd", { text: value })]));
}

/** Let the dialog answer; close it on a click beside it, as people expect. */
export function prepareDialog() {
  const dialog = byId("dialog");
  dialog.addEventListener("close", () => dialog.open || answer(dialog.returnValue)); // the event of one that was replaced comes while the next is open
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
