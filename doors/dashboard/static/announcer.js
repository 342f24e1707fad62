// Words for screen readers: few, one after the other, never a flood.

import { byId, setText } from "./dom.js";

const PAUSE = 1_500;
const MOST = 4;

let waiting = [];
let busy = false;

/** Say something when there is quiet; of many things at once the latest few. */
export function announce(text) {
  waiting.push(text);
  if (!busy) speak();
}

function speak() {
  busy = waiting.length > 0;
  if (!busy) return;
  const more = waiting.length - MOST;
  setText(byId("announcer"), [...waiting.slice(-MOST), ...(more > 0 ? [`and ${more} more`] : [])].join(". "));
  waiting = [];
  setTimeout(speak, PAUSE);
}

/** A short notice at the edge of the page that goes by itself; `tone`: `good` or `bad`. */
export function toast(text, tone = "good") {
  const toasts = byId("toasts");
  const element = document.createElement("p");
  element.className = "toast";
  element.dataset.tone = tone;
  element.textContent = text;
  toasts.append(element);
  while (toasts.childElementCount > 4) toasts.firstElementChild.remove();
  setTimeout(() => element.remove(), tone === "bad" ? 12_000 : 5_000);
}
