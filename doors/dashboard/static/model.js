// What the page knows: the supervisor's status, its sessions, the latest events. Pure: no element, no clock, no network.

import { Series } from "./series.js";
import { Spent } from "./spent.js";
import { displayOf, summarize } from "./summary.js";

const KEPT_EVENTS = 2_000;
const KEPT_RUNS = 5_000;
const KEPT_TEXT = 40_000; // of one session's answer that is under way
const KEPT_LINE = 400;
const KEPT_ACCEPTED = 100; // messages of one session
const KEPT_CLOSED = 200;
const KEPT_SESSIONS = 20_000;

const LANE_WAITS = { queued: "its lane has as many turns as it may", gathering: "more messages may follow" };

/** Whether an event is a piece of an answer or a thought: what comes by the thousand. */
export const isPiece = (type) => type.endsWith("_chunk");

/** Whether a message came into a turn that was running: its run begins, but no turn does. */
export const isJoining = ({ run_id: run, data }) => Boolean(data?.leader) && data.leader !== run;

/** What the protocols say of a session, in the words of the commands; a word of a later version stays as it is. */
const STATES = { READY: "idle", WORKING: "working", PAUSED: "approval" };
const stateOf = (state) => STATES[state] ?? state;

const ENDS = { interrupted: "it was aborted", timeout: "it took too long", error: "it failed", length: "the answer has reached a limit and is cut off" };

/** How a turn ended, in words, of the data of its `done` event or of its outcome; empty where it came to its own end. */
export const endOf = ({ reason, error }) => error?.message ?? ENDS[reason] ?? "";

/** Whether that is a failure: not where a person has aborted it. */
export const hasFailed = ({ reason, error }) => ["error", "timeout"].includes(reason) || error?.code === "interrupted";

/** One session as the page shows it. Times are Unix times in seconds. */
class Session {
  agent = "";
  role = "";
  /** Whether a turn runs: `idle`, `working` or `approval`. */
  state = "idle";
  updatedAt = 0;
  model = null;
  /** What was said last, or what goes on, while no answer is under way. */
  note = "";
  /** The part of the running turn's answer that is in no transcript yet; it grows without being copied. */
  live = "";
  /** Whether `live` has the beginning of that answer. */
  isFromStart = false;
  failed = false;
  /** Messages whose runs go on or wait, by run: `{text, started, joined}`. */
  accepted = new Map();
  /** The id of the run that was accepted last, null where there is none. */
  lastRun = null;
  /** When the turn that runs has begun, null where that is not known. */
  turnBegan = null;
  /** The turns that this page has seen end. */
  spent = new Spent();
  /** How many events there had been when its state changed last. */
  changed = 0;

  constructor(key) {
    this.key = key;
  }

  /** The end of what was said last, or what goes on. */
  get line() {
    return this.live === "" ? this.note : this.live.slice(-KEPT_LINE);
  }
}

export class Model {
  /** The status document, null before the first one. */
  status = null;
  sessions = new Map();
  /** Whether the sessions were listed yet. */
  isListed = false;
  /** The latest events, oldest first, with a line each; `from` is the number of the first one since the start. */
  events = [];
  eventCount = 0;
  heartbeats = null;
  /** Tool calls that wait for approval, by session and call id. */
  permissions = new Map();
  /** Why calls wait for approval no longer, by session and call id: a sentence. */
  closed = new Map();
  /** Whether an event named a session that the list of sessions did not have. */
  hasStrangers = false;
  series = { wait: new Series(), turn: new Series(), turns: new Series(), events: new Series(), memory: new Series() };
  /** What share of a processor each worker has used between the last two status documents, by its id. */
  load = new Map();
  #runs = new Map();
  /** Sessions whose next turn has no worker yet: `{why, place, waited}`; `place`: 1 is next, null in no queue; `waited`: seconds. */
  #waits = new Map();
  /** How many events there had been when sessions were deleted, by key: an older list still has them. */
  #deleted = new Map();
  /** Seqs of decisions that no status document contains yet, by session and call id. */
  #decided = new Map();

  /** Take a status document that came at `now`. */
  takeStatus(status, now) {
    this.#takeLoad(this.status, status);
    this.status = status;
    this.series.memory.add(now, status.workers.reduce((sum, worker) => sum + (worker.rss ?? 0), 0));
    this.#takeAsked(status.gateway);
    const { sessions } = status.gateway.lanes;
    this.#waits = new Map(sessions.filter(({ state }) => LANE_WAITS[state]).map(({ session, state }) => [session, { why: LANE_WAITS[state], place: null, waited: null }]));
    const atWork = new Set(status.workers.filter((worker) => worker.turn_age !== null).map((worker) => worker.session));
    for (const { session, why, position, waited } of status.waiting) {
      const isFirst = (this.#waits.get(session)?.place ?? Infinity) > position;
      if (!atWork.has(session) && isFirst) this.#waits.set(session, { why, place: position, waited });
    }
  }

  /** Events are missing: of the answers that are under way only what comes from now on is known. */
  takeGap() {
    for (const session of this.sessions.values()) Object.assign(session, { live: "", isFromStart: false });
  }

  /** What a session waits for before its next turn can begin: `{why, place, waited}`; null where it does not wait. */
  waitsFor(key) {
    return this.#waits.get(key) ?? null;
  }

  /** What a session is doing: `idle`, `working`, `waiting` or `approval`; `failed` where its last turn has, `new` where there is none of that key. */
  shownState(key) {
    const session = this.sessions.get(key);
    if (this.#waits.has(key) && session?.state !== "approval") return "waiting";
    if (session === undefined) return "new";
    return session.failed && session.state === "idle" ? "failed" : session.state;
  }

  /**
   * Take the answer of `sessions.list`, used last first, that was asked for when there had been `asked` events. Sessions
   * that it does not have are gone; what events have said since then is newer than it. Kept used last last, as new ones come.
   */
  takeSessions(views, asked) {
    const sessions = new Map();
    for (const view of views.slice(0, KEPT_SESSIONS).reverse()) {
      if ((this.#deleted.get(view.key) ?? 0) > asked) continue;
      const session = this.sessions.get(view.key) ?? new Session(view.key);
      Object.assign(session, { agent: view.agent, role: view.role, model: view.model });
      session.lastRun ??= view.last_run;
      if (session.changed <= asked) session.state = stateOf(view.state);
      session.updatedAt = Math.max(session.updatedAt, view.updated_at);
      sessions.set(view.key, session);
    }
    for (const [key, session] of this.sessions) if (session.changed > asked && !sessions.has(key)) sessions.set(key, session);
    this.sessions = sessions;
    this.isListed = true;
    this.hasStrangers = false;
  }

  /** Take events in their order; the names of what they have changed. */
  takeEvents(events) {
    const changed = new Set(["events"]);
    for (const event of events) this.#take(event, event.data ?? {}, changed);
    if (this.events.length > 1.5 * KEPT_EVENTS) this.events = this.events.slice(-KEPT_EVENTS);
    return changed;
  }

  /** The sessions, those that wait for a person first, then those at work, then by the time of their last turn. */
  sortedSessions() {
    const rank = { approval: 0, working: 1 };
    const order = (a, b) => (rank[a.state] ?? 2) - (rank[b.state] ?? 2) || b.updatedAt - a.updatedAt || (a.key < b.key ? -1 : 1);
    return [...this.sessions.values()].sort(order);
  }

  /** Calls that wait, as a status document says; an event that is newer than the document knows better. */
  #takeAsked({ permissions, events }) {
    const asked = new Map();
    for (const { session, call } of permissions) {
      const key = `${session}\n${call.id}`;
      if ((this.#decided.get(key) ?? 0) <= events.last_seq) asked.set(key, this.permissions.get(key) ?? { session, call, reason: call.reason, options: call.options, seq: 0 });
    }
    for (const [key, each] of this.permissions) if (each.seq > events.last_seq) asked.set(key, each);
    for (const [key, seq] of this.#decided) if (seq <= events.last_seq) this.#decided.delete(key);
    this.permissions = asked;
  }

  /** A worker reports the processor seconds it has used so far; a new one has no rate yet. */
  #takeLoad(before, status) {
    const seconds = before === null ? 0 : status.supervisor.uptime - before.supervisor.uptime;
    if (before !== null && seconds < 0.2) return; // too short a time to tell
    const used = new Map((before?.workers ?? []).map((worker) => [worker.id, worker.cpu]));
    const known = status.workers.filter((worker) => worker.cpu !== null && (used.get(worker.id) ?? null) !== null);
    this.load = new Map(known.map((worker) => [worker.id, Math.max(0, (worker.cpu - used.get(worker.id)) / seconds)]));
  }

  #take(event, data, changed) {
    const { seq, ts, session, channel, type } = event;
    this.eventCount++;
    this.events.push({ seq, ts, session, channel, type, run: event.run_id ?? null, line: summarize(type, data) });
    this.series.events.add(ts);
    if (type === "run:accepted" || type === "run:start" || type === "done") this.#takeRun(event);
    if (type.startsWith("permission_")) this.#takePermission(event, data, changed);
    if (type.startsWith("worker_")) changed.add("workers");
    if (type.startsWith("node_")) changed.add("workers").add("nodes");
    if (type === "background") changed.add("background");
    if (type === "cron") changed.add("jobs");
    if (session === "") return;
    takeMessage(this.#sessionOf(session), event, data);
    this.#takeSession(this.#sessionOf(session), event, data, changed);
  }

  #sessionOf(key) {
    let session = this.sessions.get(key);
    if (session === undefined) {
      session = new Session(key);
      if (this.sessions.size >= KEPT_SESSIONS) this.sessions.delete(this.sessions.keys().next().value);
      this.sessions.set(key, session);
      this.hasStrangers = true;
    }
    return session;
  }

  #takeRun({ run_id: run, type, ts }) {
    const known = this.#runs.get(run);
    if (type === "run:accepted") this.#runs.set(run, { accepted: ts, started: null });
    else if (type === "run:start" && known !== undefined) {
      known.started = ts;
      this.series.wait.add(ts, ts - known.accepted);
    } else if (type === "done") {
      this.series.turns.add(ts);
      if (known?.started) this.series.turn.add(ts, ts - known.started);
      this.#runs.delete(run);
    }
    if (this.#runs.size > KEPT_RUNS) this.#runs.delete(this.#runs.keys().next().value);
  }

  #takePermission({ seq, session, type }, data, changed) {
    if (type === "permission_required") {
      this.permissions.set(`${session}\n${data.call.id}`, { session, call: data.call, reason: data.reason, options: data.options, seq });
    } else {
      const decided = data.decision === "allow" ? "was approved" : "was denied";
      this.#closePermission(`${session}\n${data.call_id}`, seq, data.by ? `${decided} by ${data.by}` : decided);
    }
    changed.add("approvals");
  }

  #closePermission(key, seq, what) {
    const asked = this.permissions.get(key);
    if (asked !== undefined) this.closed.set(key, `${asked.call.name} in ${asked.session} ${what}`);
    if (this.closed.size > KEPT_CLOSED) this.closed.delete(this.closed.keys().next().value);
    this.permissions.delete(key);
    this.#decided.set(key, seq);
    if (this.#decided.size > KEPT_CLOSED) this.#decided.delete(this.#decided.keys().next().value);
  }

  /** A turn that has ended asks nothing any more. */
  #closeQuestions(event, data, changed) {
    const open = [...this.permissions].filter(([, each]) => each.session === event.session);
    for (const [key] of open) this.#closePermission(key, event.seq, `was not run; its turn ended: ${endOf(data) || "it is over"}`);
    event.unanswered = open.map(([, each]) => each.call.name);
    if (open.length > 0) changed.add("approvals");
  }

  /** Of the runs of one turn the first to end has what it has cost. */
  #endTurn(session, event, { usage }) {
    if (session.turnBegan === null) return;
    event.turn = { seconds: event.ts - session.turnBegan, usage: usage ?? null, model: session.model };
    session.spent.add(event.turn);
    session.turnBegan = null;
  }

  #delete(key) {
    this.sessions.delete(key);
    this.#deleted.delete(key);
    this.#deleted.set(key, this.eventCount);
    if (this.#deleted.size > KEPT_CLOSED) this.#deleted.delete(this.#deleted.keys().next().value);
  }

  #takeSession(session, event, data, changed) {
    const { type, ts, session: key } = event;
    changed.add("sessions");
    if (event.run_id && !isPiece(type)) session.updatedAt = Math.max(session.updatedAt, ts); // a parked worker is no activity
    if (displayOf(type)?.text === "text") {
      const piece = data.delta ?? data.text ?? "";
      session.live += piece;
      if (session.live.length > 2 * KEPT_TEXT) Object.assign(session, { live: session.live.slice(-KEPT_TEXT), isFromStart: false });
      session.failed = false;
    } else if (type === "state_changed") Object.assign(session, { state: stateOf(data.to), changed: this.eventCount });
    else if (type === "session_deleted") this.#delete(key);
    else if (type === "session_reset") Object.assign(session, { note: "", live: "" });
    else if ((type === "run:start" && !isJoining(event)) || type.startsWith("tool:")) {
      if (type === "run:start") Object.assign(session, { turnBegan: ts });
      if (type === "run:start") this.#waits.delete(key);
      Object.assign(session, { live: "", isFromStart: true });
      session.note = type === "run:start" ? "" : summarize(type, data);
      session.failed = type === "tool:error";
    } else if (type === "done") {
      session.note = (data.error?.message ?? data.text ?? session.line).slice(-KEPT_LINE);
      session.live = "";
      session.failed = hasFailed(data);
      this.#endTurn(session, event, data);
      this.#closeQuestions(event, data, changed);
    }
  }
}

/** What an event says of the messages that wait for an answer; the end of a run is given its message. */
function takeMessage(session, event, data) {
  const { type, run_id: run } = event;
  const { accepted } = session;
  if (type === "run:accepted") session.lastRun = run;
  if (type === "run:accepted" && data.text && accepted.size < KEPT_ACCEPTED) accepted.set(run, { text: data.text, started: false, joined: false });
  else if (type === "run:start" && accepted.has(run)) Object.assign(accepted.get(run), { started: true, joined: isJoining(event) });
  else if (type === "done") {
    event.message = accepted.get(run);
    accepted.delete(run);
  }
}
