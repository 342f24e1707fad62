"""Heartbeats, scheduled jobs and alerts on the terminal. Pure: documents in, texts out."""

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from commands.layout import Column, TableRows, make_table, short_key
from wire.terminal import clean, format_duration

Record = dict[str, Any]

_STYLES = {"alert": "yellow", "failed": "red", "refused": "red", "interrupted": "yellow", "ok": "green"}
_SKIP_REASONS = {
    "disabled": "it does not beat for this; see agents.{agent}.heartbeat in the settings: every, wake",
    "outside-active-hours": "it is outside its active hours",
    "requests-in-flight": "its conversation is in a turn; the beat comes when that has ended",
    "not-due": "it is not due",
    "empty-checklist": "HEARTBEAT.md of its workspace has nothing to do",
    "no-worker": "no worker was free",
    "flood-guard": "events have woken it too often; the beat comes after the pause that pool heartbeats shows",
    "nothing-pending": "its system events were delivered meanwhile",
}
"""Why there was no beat, for a person."""
_LONGEST_TEXT = 2000
_LONGEST_WHEN = 40
_BLOCKED_JOBS_SHOWN = 5
"""Jobs in the list of which it is said why they would not run."""
_UNDELIVERED_SHOWN = 5
"""Latest undeliverable alerts in the status; of a dead receiver there may be hundreds."""


# --- heartbeats -------------------------------------------------------------------------------------------------------


def heartbeats_view(agents: Sequence[Record], width: int, now: float | None = None) -> Group:
    """One line an agent of ``heartbeat.status``, then what needs attention. ``now``: Unix time."""
    moment = time.time() if now is None else now
    columns = [
        Column("AGENT", lambda a: clean(a["agent"]), stretches=True),
        Column("EVERY", _every, right=True),
        Column("NEXT", lambda a: _next_beat(a, moment), right=True),
        Column("LAST", lambda a: _ago(_reported_at(a["last_beat"]), moment), right=True),
        Column("OUTCOME", lambda a: _outcome(a["last_beat"])),
        Column("SKIPPED", lambda a: _skipped(a["last_skip"])),
        Column("WHEN", lambda a: _ago(_reported_at(a["last_skip"]), moment), right=True, optional=2),
        Column("WOKEN BY", lambda a: clean((a["last_beat"] or {}).get("reason", "-")), optional=4),
        Column("EVENTS", lambda a: "wake" if a["wake"] else Text("wait", "dim"), optional=2),
        Column("BEATS", _beats, right=True, optional=1),
        Column("SAID", lambda a: clean((a["last_beat"] or {}).get("text", "-")), stretches=True, optional=3),
    ]
    table = make_table(columns, agents, width, empty="no agents")
    return Group(table, *(line for agent in agents for line in _problem_lines(agent, moment)))


def beat_text(report: Record) -> Text:
    """What came of a beat that was asked for."""
    agent, outcome = clean(report["agent"]), report["outcome"]
    took = f" in {format_duration(report['took'])}" if report.get("took") else ""
    match outcome:
        case "skipped":
            why = _SKIP_REASONS.get(report["skipped"], clean(report["skipped"])).format(agent=agent)
            text = Text.assemble((f"{agent} does not beat: ", "yellow"), why)
        case "silent":
            text = Text.assemble((f"{agent} is well", "green"), f": nothing to report{took}")
        case "repeated":
            text = Text(f"{agent} has nothing new: it reported the same within the last day{took}")
        case "alert":
            text = Text.assemble((f"{agent} reports{took}:", "yellow"), f"\n{clean(report.get('text', ''))}")
        case _:
            text = Text.assemble((f"the beat of {agent} failed{took}: ", "red"), clean(report.get("error", "")))
    if report.get("problem"):
        text.append(f"\nwarning: {clean(report['problem'])}", "yellow")
    return text


def _every(agent: Record) -> str | Text:
    return format_duration(agent["every"]) if agent["every"] else Text("off", "dim")


def _next_beat(agent: Record, now: float) -> str | Text:
    if agent["running"]:
        return Text("now", "green")
    due = agent["next_due"]
    return Text("-", "dim") if due is None else format_duration(max(due - now, 0.0))


def _beats(agent: Record) -> str:
    """How many there were, alerts among them."""
    counts = agent["counts"]
    beats = sum(count for outcome, count in counts.items() if outcome != "skipped")
    return f"{beats} ({counts['alert']} alerts)" if counts.get("alert") else str(beats)


def _reported_at(report: Record | None) -> float | None:
    return None if report is None else report["at"]


def _outcome(report: Record | None) -> Text:
    return Text("-", "dim") if report is None else Text(clean(report["outcome"]), _STYLES.get(report["outcome"], ""))


def _skipped(report: Record | None) -> Text:
    return Text("-", "dim") if report is None else Text(clean(report["skipped"]))


def _problem_lines(agent: Record, now: float) -> list[Text]:
    name, last, skip = clean(agent["agent"]), agent["last_beat"] or {}, agent["last_skip"] or {}
    lines = [
        Text(
            f"{name}: events of {short_key(session)} wake no agent for {format_duration(until - now)}: too many came",
            "yellow",
        )
        for session, until in agent["paused"].items()
    ]
    if agent["warning"]:
        lines.append(Text(f"{name}: {clean(agent['warning'])}", "yellow"))
    problem = last.get("error") or last.get("problem") or skip.get("problem")
    if problem:
        lines.append(Text(f"{name}: {clean(problem)}", "red" if last.get("error") else "yellow"))
    return lines


# --- scheduled jobs --------------------------------------------------------------------------------------------------


def jobs_view(answer: Record, width: int, now: float | None = None) -> Group:
    """One line a job of ``cron.list``, then what could not be taken as it was meant."""
    moment = time.time() if now is None else now
    columns = [
        Column("JOB", lambda j: clean(j["id"]), stretches=True),
        Column("WHEN", lambda j: clean(j["when"])[:_LONGEST_WHEN]),
        Column("NEXT", lambda j: _due(j, moment), right=True),
        Column("LAST", lambda j: _ago(_last_ended_at(j), moment), right=True),
        Column("OUTCOME", _last_result),
        Column("MODE", lambda j: clean(j["mode"]), optional=2),
        Column("AGENT", lambda j: clean(j["agent"]), stretches=True, optional=3),
        Column("FROM", lambda j: clean(j["source"]), optional=4),
        Column("TEXT", lambda j: clean(j["text"]), stretches=True, optional=1),
    ]
    parts: list[RenderableType] = [make_table(columns, answer["jobs"], width, empty="no scheduled jobs")]
    if answer["more"]:
        after = clean(answer["jobs"][-1]["id"])
        parts.append(Text(f"{answer['total']} in all; the others: pool cron list --after {after}", "dim"))
    parts += [Text(clean(problem), "yellow") for problem in answer["problems"]]
    stuck = [job for job in answer["jobs"] if job["enabled"] and job["problem"] is not None]
    parts += [Text(f"{clean(job['id'])}: {clean(job['problem'])}", "yellow") for job in stuck[:_BLOCKED_JOBS_SHOWN]]
    return Group(*parts)


def job_started_text(job: Record) -> str:
    """What happens to a job that was to be run now."""
    name, more = clean(job["id"]), f"see: pool cron show {clean(job['id'])}"
    if job["is_waiting"]:
        return f"{name} waits for another job's run to end (cron.max_running); {more}"
    if job["mode"] == "isolated":
        return f"{name} is begun; {more}"
    heard_at = job["heard_at"]
    when = "" if heard_at is None else f" at {_clock(heard_at)}, not before (active hours, flood guard)"
    return f"{name}: agent {clean(job['agent'])} is woken for it in session {clean(job['session'])}{when}"


def job_text(job: Record, width: int, now: float | None = None) -> Group:
    """All of one job, with its history."""
    moment = time.time() if now is None else now
    facts = {
        "when": job["when"],
        "next": _due_text(job["next_due"], moment),
        "mode": f"{job['mode']}, agent {job['agent']}, session {job['session']}",
        "delivery": job["delivery"] if job["mode"] == "isolated" else "as the agent's heartbeats are",
        "from": job["source"],
    }
    lines = [Text.assemble((clean(job["id"]), "bold"), "" if job["enabled"] else ("  off", "yellow"))]
    lines += [Text(f"  {name:10}{clean(value)}") for name, value in facts.items()]
    if job["problem"] is not None:
        lines += [Text(f"  {clean(job['problem'])}", "yellow")]
    lines += [Text(f"  {clean(job['text'])[:_LONGEST_TEXT]}", "dim")]
    if job["history"]:
        lines.append(Text())
    return Group(*lines, _history(job["history"], width) if job["history"] else Text("  it has not run yet", "dim"))


def _history(outcomes: Sequence[Record], width: int) -> TableRows | Text:
    columns = [
        Column("STARTED", lambda o: _clock(o["started_at"])),
        Column("TOOK", lambda o: format_duration(o["ended_at"] - o["started_at"]), right=True),
        Column("OUTCOME", lambda o: Text(clean(o["status"]), _STYLES.get(o["status"], ""))),
        Column("SAID", lambda o: clean(o.get("error") or o.get("text") or "-"), stretches=True),
    ]
    return make_table(columns, list(reversed(outcomes)), width, empty="")


def _due(job: Record, now: float) -> str | Text:
    if job["running_since"] is not None:
        return Text("now", "green")
    if job["is_waiting"]:
        return Text("waits", "yellow")
    if not job["enabled"]:
        return Text("off", "dim")
    return Text("-", "dim") if job["next_due"] is None else format_duration(max(job["next_due"] - now, 0.0))


def _last_ended_at(job: Record) -> float | None:
    return None if job["last"] is None else job["last"]["ended_at"]


def _last_result(job: Record) -> Text:
    if job["last"] is None:
        return Text("-", "dim")
    again = f" x{job['failures']}" if job["failures"] > 1 else ""
    return Text(f"{clean(job['last']['status'])}{again}", _STYLES.get(job["last"]["status"], ""))


# --- the status -------------------------------------------------------------------------------------------------------


def autonomy_lines(figures: Record) -> list[Text]:
    """Heartbeats, jobs and alerts for ``pool status``; loud where an alert did not reach anybody."""
    cron, alerts = figures["cron"], figures["alerts"]
    lines = []
    if figures["heartbeats"]:
        lines.append(Text(f"beats     {figures['heartbeats']} agents  {figures['beating']} under way"))
    if cron["jobs"]:
        failing = (f"  {cron['failing']} failing", "red") if cron["failing"] else ""
        lines.append(
            Text.assemble(f"jobs      {cron['jobs']}  {cron['running']} running  {cron['waiting']} waiting", failing)
        )
    lines += [Text(f"          {clean(problem)}", "yellow") for problem in cron["problems"]]
    if alerts["accepted"] or alerts["waiting"]:
        lines.append(Text(f"alerts    {alerts['accepted']} accepted  {alerts['waiting']} waiting"))
    lines += [_target_line(place) for place in alerts["places"] if place["error"]]
    return lines + _undelivered(alerts["undeliverable"])


def _target_line(place: Record) -> Text:
    return Text(clean(f"          {place['waiting']} for {place['to']}: {place['error']}"), "yellow")


def _undelivered(alerts: Sequence[Record]) -> list[Text]:
    """A line each, whatever their texts are like: the status is to stay one."""
    lines = []
    for alert in alerts[-_UNDELIVERED_SHOWN:]:
        said = " ".join(alert["text"].split())
        text = f"UNDELIVERED to {alert['to']} ({_clock(alert['ts'])}, {alert['agent']}): {said}: {alert['error']}"
        lines.append(Text.assemble("alerts    ", (clean(text), "bold red")))
    if earlier := len(alerts) - len(lines):
        lines.append(Text(f"          {earlier} earlier ones were not delivered either: pool status --json", "red"))
    return lines


# --- times ------------------------------------------------------------------------------------------------------------


def _ago(moment: float | None, now: float) -> str:
    return "-" if moment is None else f"{format_duration(max(now - moment, 0.0))} ago"


def _due_text(moment: float | None, now: float) -> str:
    return "never" if moment is None else f"{_clock(moment)}, in {format_duration(max(moment - now, 0.0))}"


def _clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
