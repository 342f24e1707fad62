// What keeps the pool from its work, or soon will: judged from what the supervisor says of itself anyway. Pure.

import { plural, short, span } from "./format.js";

const LONG_WAIT = 60;
const LONG_SILENCE = 120;
const MOST_NAMED = 5;

const ok = (name, found) => ({ name, verdict: "ok", found, fix: "" });
const warn = (name, found, fix) => ({ name, verdict: "warning", found, fix });
const bad = (name, found, fix) => ({ name, verdict: "problem", found, fix });

/**
 * `{name, verdict, found, fix}` for each thing that can be wrong, the worst first. `verdict`: `problem` (something does
 * not work), `warning` or `ok`. `agents`: the answer of `agents.list`; `heartbeats` and `jobs` may be null.
 */
export function judge(status, agents, heartbeats = null) {
  const checks = [mode(status), store(status), waiting(status), workers(status), sessions(status), ...nodes(status)];
  checks.push(...agents.map((agent) => judgeAgent(agent, status.profiles)), ...autonomy(status, heartbeats ?? []), survivors(status));
  const rank = { problem: 0, warning: 1, ok: 2 };
  return checks.sort((a, b) => rank[a.verdict] - rank[b.verdict]);
}

/** All checks in two words, and how that looks. */
export function sumUp(checks) {
  const number = (verdict) => checks.filter((check) => check.verdict === verdict).length;
  if (number("problem") > 0) return { text: plural(number("problem"), "problem"), tone: "bad" };
  if (number("warning") > 0) return { text: plural(number("warning"), "warning"), tone: "warn" };
  return { text: "healthy", tone: "good" };
}

function mode({ pool }) {
  if (pool.mode === "running") return ok("pool", `running, ${pool.total} of ${plural(pool.max, "worker")}`);
  return warn("pool", `it is ${pool.mode}: no new turn begins`, "Resume, at the top of this page");
}

function store({ gateway }) {
  const { degraded, last_error: error, rows_waiting: waits, lost } = gateway.store;
  if (degraded) return bad("store", `it cannot be written: ${error}; ${plural(waits, "row")} in memory, ${lost} lost`, "make room on the disk, or mend its permissions; writing goes on by itself");
  return lost > 0 ? warn("store", `${plural(lost, "row")} were lost earlier: ${error}`, "watch the free space of the disk") : ok("store", "all is on the disk");
}

function waiting({ waiting: waiters }) {
  const longest = waiters.reduce((most, each) => (most === null || each.waited > most.waited ? each : most), null);
  if (longest === null) return ok("waiting", "no request waits for a worker");
  const found = `${plural(waiters.length, "request")}, the longest for ${span(longest.waited)} (${short(longest.session, 40)}): ${longest.why}`;
  return longest.waited > LONG_WAIT ? warn("waiting", found, "pool scale N, or a larger pool.max, gives more workers") : ok("waiting", found);
}

function workers({ workers: all }) {
  const silent = all.filter(({ suspended, last_ping: ping }) => suspended || (ping !== null && ping > LONG_SILENCE));
  if (silent.length === 0) return ok("workers", all.length === 0 ? "none is alive" : "all answer");
  return warn("workers", `suspended, or without an answer: ${named(silent.map(({ id }) => id))}`, "continue the process, or recycle the worker");
}

/** Machines that are not there, where there are others than this one. */
function nodes({ groups = [] }) {
  if (groups.length === 0) return [];
  const number = (state) => groups.reduce((sum, { nodes: known }) => sum + (known[state] ?? 0), 0);
  const gone = ["lost", "refused"].filter((state) => number(state) > 0).map((state) => `${number(state)} ${state}`);
  if (gone.length === 0) return [ok("nodes", `${plural(number("up"), "machine")} up${number("draining") > 0 ? `, ${number("draining")} draining` : ""}`)];
  return [warn("nodes", gone.join(", "), "the list of nodes says why; pool doctor tries those over ssh")];
}

function sessions({ sessions: all }) {
  const failed = all.filter(({ failed: why }) => why);
  if (failed.length === 0) return ok("sessions", `${all.length} known to the pool, none has failed`);
  return warn("sessions", `cannot go on: ${named(failed.map(({ key, failed: why }) => `${short(key, 40)} (${short(why, 80)})`))}`, "reset the session, or mend what it names");
}

/** An agent by its last start and the breakers of its profiles: no program is started for it. */
function judgeAgent({ name, seen }, profiles) {
  const broken = profiles.find(({ agent, breaker }) => agent === name && breaker !== "closed");
  const program = [seen?.program, seen?.version].filter(Boolean).join(" ");
  const fix = `its log says more; pool doctor starts ${name} once and names the remedy`;
  if (broken !== undefined) return bad(`agent ${name}`, `it is not started: ${broken.last_error ?? "its starts fail"}`, fix);
  if (seen?.problem) return bad(`agent ${name}`, `its last start failed: ${seen.problem}`, fix);
  return ok(`agent ${name}`, seen?.is_ready ? program || "it has started" : "not started yet");
}

function autonomy({ gateway: { autonomy: known } }, heartbeats) {
  if (known === undefined) return [];
  const { cron, alerts } = known;
  const checks = [];
  if (cron.failing > 0 || cron.problems.length > 0) checks.push(warn("jobs", [cron.failing > 0 && `${plural(cron.failing, "job")} failed the last time`, ...cron.problems].filter(Boolean).join("; "), "open the job to see why"));
  const stuck = alerts.places.filter(({ error }) => error);
  if (alerts.undeliverable.length > 0 || stuck.length > 0) {
    const places = stuck.map(({ to, error }) => `${to}: ${error}`);
    checks.push(warn("alerts", [alerts.undeliverable.length > 0 && `${alerts.undeliverable.length} could not be delivered`, ...places].filter(Boolean).join("; "), "pool status lists them"));
  }
  const odd = heartbeats.filter(({ warning }) => warning);
  if (odd.length > 0) checks.push(warn("heartbeats", named(odd.map(({ agent, warning }) => `${agent}: ${warning}`)), "mend the setting, then pool reload"));
  return checks;
}

const survivors = ({ guarantee }) => ok("end of the supervisor", guarantee.text);

const named = (names) => names.slice(0, MOST_NAMED).join(", ") + (names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : "");
