// Which message of a transcript is that of a run, and where its turn ends. Pure.

import { textsOf } from "./messages.js";

const INSIDE_A_TURN = new Set(["steer", "summary"]);

/** Whether a message, or one of its texts, is a run's. */
export const isSame = (message, text) => message === text;

/** Whether a text is whole lines of a message: the supervisor writes collected ones, and what it has to say itself, with it into one. */
export const holdsLines = (message, text) => `\n${message}\n`.includes(`\n${text}\n`);

/** Whether a turn begins with a message. */
export function begins({ role, content, origin }) {
  return role === "user" && !INSIDE_A_TURN.has(origin) && textsOf({ content }).some((text) => text.trim() !== "");
}

/** The message of a run that has ended, which is marked as that; undefined where it is not there, or not known. */
export function findMessage(messages, { run, message }) {
  const text = message?.text.trim();
  const find = (holds) => messages.findLast(({ said, isMatched }) => !isMatched && said.some((each) => holds(each, text)));
  let found = messages.findLast(({ runs }) => runs.has(run));
  if (found === undefined && text) {
    found = find(isSame);
    if (found === undefined) found = find(holdsLines);
    else found.isMatched = true;
  }
  found?.runs.add(run);
  if (found !== undefined && message?.joined) found.begins = false; // not every agent marks those
  return found;
}

/** The last message with something to show of the turn that a message is of. */
export function lastOfTurn(messages, message) {
  const from = messages.indexOf(message);
  const next = messages.findIndex((each, index) => index > from && each.begins);
  return messages.slice(from, next === -1 ? undefined : next).findLast(({ elements }) => elements.length > 0);
}
