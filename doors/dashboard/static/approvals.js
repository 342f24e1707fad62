// Tool calls that wait for a person: all of what is asked, a note, allow or deny. Those of the open session stand in its conversation.

import { announce, toast } from "./announcer.js";
import { CallInFull } from "./calls.js";
import { byId, h, reconcile, setText } from "./dom.js";
import { plural, short } from "./format.js";

const MOST = 20;
const MOST_LABEL = 40; // characters of an agent's own answer

export class ApprovalsView {
  #model;
  #app;
  /** The cards by session and call id: one that moves into its conversation keeps what was typed. */
  #cards = new Map();
  #announced = new Set();
  /** Questions that were answered on this page. */
  #answered = new Set();

  constructor(model, app) {
    this.#model = model;
    this.#app = app;
  }

  draw() {
    const asked = [...this.#model.permissions].map(([key, each]) => ({ key, ...each }));
    const open = this.#app.openKey();
    const elsewhere = asked.filter(({ session }) => session !== open);
    const hadFocus = document.activeElement.closest(".approval") !== null;
    this.#put(byId("approval-list"), elsewhere);
    this.#app.changeHistory(() => this.#put(byId("asked-here"), asked.filter(({ session }) => session === open)));
    for (const key of this.#cards.keys()) if (!this.#model.permissions.has(key)) this.#cards.delete(key);
    byId("approvals").hidden = elsewhere.length === 0;
    setText(byId("approvals-title"), elsewhere.length > 1 ? `${elsewhere.length} calls wait for your approval` : "Waiting for your approval");
    document.title = asked.length > 0 ? `(${asked.length}) pool` : "pool";
    if (hadFocus && document.activeElement === document.body) this.focus();
    for (const { key, session, call } of asked) if (!this.#announced.has(key)) announce(`Approval needed: ${call.name} in session ${session}`);
    for (const key of this.#announced) this.#announceClosed(key);
    this.#announced = new Set(this.#model.permissions.keys());
  }

  #put(list, asked) {
    const card = (each) => {
      if (!this.#cards.has(each.key)) this.#cards.set(each.key, this.#create(each));
      return this.#cards.get(each.key);
    };
    reconcile(list, asked.slice(0, MOST), (each) => each.key, card, () => {});
  }

  /** A question that was on the page and is gone, without an answer from here: say why. */
  #announceClosed(key) {
    const why = this.#model.closed.get(key);
    if (why === undefined || this.#model.permissions.has(key)) return;
    this.#model.closed.delete(key);
    if (!this.#answered.delete(key)) toast(why);
  }

  /** Go to the first call, of a session where one is given; where there is none, to the list of sessions. */
  focus(session = null) {
    const cards = [...document.querySelectorAll("#asked-here > .approval, #approval-list > .approval")];
    const card = cards.find((each) => each.dataset.session === session) ?? cards[0];
    const first = card?.querySelector("input") ?? null;
    (first ?? byId("sessions-title")).focus();
    if (first === null) announce(`${plural(0, "call")} wait for approval`);
  }

  #create({ session, call, reason, options }) {
    const note = h("input", { type: "text", maxlength: "2000", placeholder: "Note to the model (optional)", "aria-label": `Note about ${call.name} in ${session}`, spellcheck: "true" });
    const button = ({ label, tone, ...answer }) =>
      h("button", { type: "button", class: `button ${tone}`, text: label, "aria-label": `${label} ${call.name} in ${session}`, on: { click: () => this.#decide(element, session, call, answer, note.value, full.seen) } });
    const open = h("button", { type: "button", class: "link-button", text: session, on: { click: () => this.#app.openSession(session) } });
    const answers = answersOf(options ?? []);
    const buttons = answers.map(button);
    const approving = buttons.filter((_, index) => answers[index].decision === "allow");
    for (const each of approving) each.disabled = true;
    const full = new CallInFull(this.#app, session, call, () => {
      for (const each of approving) Object.assign(each, { disabled: !full.isWhole, title: full.isWhole ? "" : "Not all of the call is shown" });
    });
    const why = reason ? h("span", { class: "why", text: `: ${reason}` }) : null;
    const what = h("div", { class: "asked" }, h("p", {}, h("strong", { text: call.name }), " in ", open, why), full.element);
    const answer = h("div", { class: "answer" }, note, ...buttons);
    const element = h("li", { class: "approval", data: { call: call.id, session } }, what, answer);
    return element;
  }

  async #decide(element, session, call, answer, note, seen) {
    const buttons = [...element.querySelectorAll(".answer button")].filter((button) => !button.disabled);
    for (const button of buttons) button.disabled = true;
    const params = { session, call_id: call.id, ...answer, ...(note.trim() ? { note: note.trim() } : {}), ...(seen ? { seen } : {}) };
    const key = `${session}\n${call.id}`;
    this.#answered.add(key);
    const decided = await this.#app.act("decide", params, "");
    if (decided !== null) return toast(`${decided.decision === "allow" ? "Approved" : "Denied"}: ${call.name} in ${session}`);
    this.#answered.delete(key);
    for (const button of buttons) button.disabled = false;
    return undefined;
  }
}

/** The buttons below a question, those that deny first. An agent whose own answers are all for ever takes a plain yes and no too. */
function answersOf(options) {
  const own = options.map(({ id, name, kind }) => {
    const decision = kind.startsWith("reject") ? "deny" : "allow";
    return { label: short(name || id, MOST_LABEL), tone: kind === "allow_once" ? "primary" : "", decision, option_id: id };
  });
  const denying = own.filter(({ decision }) => decision === "deny");
  const plain = options.every(({ kind }) => kind === "allow_always") ? [{ label: "Approve", tone: "primary", decision: "allow" }] : [];
  const approving = [...own.filter(({ decision }) => decision === "allow"), ...plain];
  return [...(denying.length > 0 ? denying : [{ label: "Deny", tone: "", decision: "deny" }]), ...approving];
}
