// A new prompt in one step: what to say, to which agent, with which model, in a session of which name.

import { show } from "./dialogs.js";
import { byId, h } from "./dom.js";

/** Ask for it all; `app.openSession` takes it from there. Without a text the session is opened with a place to write, without a name under a new one. */
export async function askForPrompt(app) {
  const name = `web-${Date.now().toString(36)}`;
  const text = h("textarea", { id: "begin-text", rows: "5", placeholder: "What shall be done?", spellcheck: "true", autofocus: true });
  const key = h("input", { id: "begin-key", type: "text", value: name, placeholder: name, maxlength: "512", spellcheck: "false", autocomplete: "off" });
  const agent = h("select", { id: "begin-agent" }, h("option", { value: "", text: "as configured" }));
  const model = h("input", { id: "begin-model", type: "text", placeholder: "the agent's own", list: "begin-models", maxlength: "256", spellcheck: "false", autocomplete: "off" });
  const models = h("datalist", { id: "begin-models" });
  fillLists(app, agent, models);
  const fields = [field("Prompt", text), h("div", { class: "field-row" }, field("Agent", agent), field("Model, for this prompt", model)), field("Session", key), models];
  if ((await showForm(fields)) === null) return;
  const given = { agent: agent.value, model: model.value.trim(), text: text.value.trim() };
  app.openSession(key.value.trim() || name, { ...given, write: true });
}

const field = (label, input) => h("div", { class: "field" }, h("label", { for: input.id, text: label }), input);

/** The agents of the settings, and the models that the workers of the chosen one have named. */
async function fillLists(app, agent, models) {
  const known = (await app.ask("agents.list")) ?? [];
  const chosen = () => known.find(({ name, is_default: isDefault }) => (agent.value === "" ? isDefault : name === agent.value));
  const offer = () => models.replaceChildren(...(chosen()?.seen?.models ?? []).map((each) => h("option", { value: each.id ?? each })));
  agent.append(...known.map(({ name, dialect }) => h("option", { value: name, text: dialect === "native" ? name : `${name} (${dialect})` })));
  const byDefault = known.find(({ is_default: isDefault }) => isDefault);
  if (byDefault !== undefined) agent.firstElementChild.textContent = `as configured (${byDefault.name})`;
  agent.addEventListener("change", offer);
  offer();
}

/** Enter sends, in each of the fields; with Shift it begins a line. */
async function showForm(fields) {
  const dialog = byId("dialog");
  const enter = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.target instanceof HTMLButtonElement) return;
    event.preventDefault(); // else the button that gets the focus back is pressed by the same key
    dialog.close("Send");
  };
  dialog.addEventListener("keydown", enter);
  const chosen = await show("New prompt", fields, [
    { label: "Cancel", value: null },
    { label: "Send", value: "send", tone: "primary" },
  ]);
  dialog.removeEventListener("keydown", enter);
  return chosen;
}
