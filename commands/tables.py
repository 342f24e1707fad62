"""What ``pool status``, the listings, `explain`, `route` and `doctor` show. Pure: documents in, renderables out."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from commands.autonomy_view import autonomy_lines
from commands.layout import UNBOUNDED, Column, TableRows, approval_lines, make_table, short_key
from commands.nodes_view import group_lines, node_column
from commands.report_text import report_columns, report_rows
from commands.session_states import STATE_STYLES, listed_state, states_in_status
from wire.terminal import clean, format_duration, format_size

_MOST_WAITERS = 20
"""That the status shows; the list of all may be thousands of lines."""
Record = dict[str, Any]

_STATE_STYLES = {
    **dict.fromkeys(("leased", "running"), "green"),
    **dict.fromkeys(("starting", "paused", "half_open"), "yellow"),
    **dict.fromkeys(("stopping", "dead", "draining", "closed", "open", "suspended"), "red"),
    **STATE_STYLES,
}
_VERDICTS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "missing": ("MISSING", "red")}


def status_view(document: Record, width: int, place: str = "") -> Group:
    """The whole document. ``width``: columns of the terminal; narrow ones get fewer table columns.

    ``place``: the options by which shown commands find the supervisor.
    """
    parts: list[RenderableType] = [_headline(document), _supervisor_line(document)]
    parts += group_lines(document["groups"])
    parts += [Text(), workers_table(document["workers"], width)]
    if document["waiting"]:
        parts += [Text(), waiting_table(document["waiting"][:_MOST_WAITERS], width)]
    if len(document["waiting"]) > _MOST_WAITERS:
        parts.append(
            Text(f"... and {len(document['waiting']) - _MOST_WAITERS} more; `pool waiting` lists them all", "dim")
        )
    if document["profiles"]:
        parts += [Text(), _profiles_table(document["profiles"], width)]
    parts += [Text(), _latency_table(document["latency"]), Text(), _counter_lines(document), _guarantee(document)]
    parts += _gateway_lines(document["gateway"], place)
    return Group(*parts)


def workers_table(
    workers: Sequence[Record], width: int, *, cpu: Callable[[float | None], str] = format_duration
) -> TableRows | Text:
    """One line a worker. ``cpu``: how a worker's field of that name is written; of a status it is processor time."""
    columns = [
        Column("WORKER", lambda w: clean(w["id"])),
        Column("PID", lambda w: clean(w["pid"]), right=True),
        Column("STATE", _worker_state),
        *node_column(workers),
        Column("SESSION", lambda w: short_key(w["session"]), stretches=True),
        Column("AGENT/ROLE", _agent_and_role, stretches=True, optional=3),
        Column("TURN", lambda w: format_duration(w["turn_age"]), right=True),
        Column("TURNS", lambda w: clean(w["turns"]), right=True, optional=2),
        Column("AGE", lambda w: format_duration(w["age"]), right=True, optional=1),
        Column("RSS", lambda w: format_size(w["rss"]), right=True),
        Column("CPU", lambda w: cpu(w["cpu"]), right=True, optional=4),
        Column("PING", lambda w: format_duration(w["last_ping"]), right=True, optional=5),
        Column("PROFILE", lambda w: clean(w["profile"]), optional=6),
        *report_columns(workers),
    ]
    return make_table(columns, workers, width, empty="no workers")


def waiting_table(waiting: Sequence[Record], width: int) -> TableRows | Text:
    """One line a waiter, the next to be served first."""
    columns = [
        Column("#", lambda w: clean(w["position"]), right=True),
        Column("REQUEST", lambda w: clean(w["request"]), optional=1),
        Column("SESSION", lambda w: short_key(w["session"]), stretches=True),
        Column("PRIORITY", lambda w: f"{w.get('priority_now', w['priority']):.1f}", right=True),
        Column("WAITED", lambda w: format_duration(w["waited"]), right=True),
        Column("WHY", lambda w: clean(w["why"]), stretches=True),
    ]
    return make_table(columns, waiting, width, empty="no requests waiting")


def sessions_view(sessions: Sequence[Record], width: int, place: str = "") -> Group:
    """One line a session, then what they ask people, with the commands to type. ``place``: see ``status_view``."""
    asked = [{"session": one["key"], "call": call} for one in sessions for call in one["pending_permissions"]]
    return Group(_sessions_table(sessions, width), *([Text()] if asked else []), *approval_lines(asked, place))


def _sessions_table(sessions: Sequence[Record], width: int) -> TableRows | Text:
    """Of a session's transcript the file's name, the directory being that of all."""
    waits = Column("WAITS FOR", lambda s: clean(s["waits_for"] or "-"), stretches=True)
    columns = [
        Column("SESSION", lambda s: short_key(s["key"]), stretches=True),
        Column("STATE", lambda s: _state(listed_state(s))),
        Column("WORKER", lambda s: clean(s["worker"])),
        Column("WAITING", lambda s: clean(s["waiting"]), right=True),
        *([waits] if any(session["waits_for"] for session in sessions) else []),
        Column("ASKS", lambda s: clean(len(s["pending_permissions"]) or "-"), right=True, optional=1),
        Column("AGENT/ROLE", _agent_and_role, stretches=True, optional=2),
        Column("USED", lambda s: time.strftime("%m-%d %H:%M", time.localtime(s["updated_at"])), optional=3),
        Column("TRANSCRIPT", lambda s: clean((s["transcript"] or "-").rpartition("/")[2]), stretches=True, optional=4),
    ]
    return make_table(columns, sessions, width, empty="no sessions")


def explanation_table(explanation: Record, width: int) -> Group:
    """Why each worker is or is not taken for what was asked about."""
    profile = explanation["profile"]
    wanted = Text.assemble(
        "wanted: ", (f"{profile['agent']}/{profile['role']}", "bold"), f"  profile {profile['signature']}"
    )
    columns = [
        Column("WORKER", lambda w: clean(w["worker"])),
        Column("MATCH", lambda w: Text(w["level"], "red" if w["level"] == "none" else "green")),
        Column("STATE", lambda w: _state(w.get("state", ""))),
        Column("SESSION", lambda w: short_key(w.get("session")), stretches=True),
        Column("DIFFERENCE", lambda w: clean(w["difference"] or "-"), stretches=True),
    ]
    workers = make_table(columns, explanation["workers"], width, empty="no workers")
    about = _program_lines(explanation.get("seen") or {}, explanation.get("report") or {})
    waits = _wait_lines(explanation.get("wait") or {})
    return Group(wanted, *about, *_group_lines(explanation.get("group", "")), *waits, Text(), workers)


def _group_lines(group: str) -> list[Text]:
    """The slots that workers of the agent share."""
    return [Text(clean(f"slots:  {group}"), overflow="fold")] if group else []


def _wait_lines(wait: Record) -> list[Text]:
    """Where the session's next request stands, why, and what would have to happen."""
    if not wait:
        return []
    place = f"{wait['place']} of {wait['waiting']}, " if wait["place"] else ""
    waits = Text.assemble(("waits:  ", "yellow"), clean(f"{place}{wait['why']}"), overflow="fold")
    return [waits, Text(clean(f"needs:  {wait['needs']}"), overflow="fold")]


def _program_lines(seen: Record, report: Record) -> list[Text]:
    """What workers of the agent have shown of their program, as ``pool agents`` says it; what the session's says."""
    rows = [f"{name}: {text}" for name, text in report_rows(report) if name not in ("program", "can")]
    if seen.get("program"):
        how = ", without a replay after an end in order" if seen.get("honest") == "yes" else ""
        resume = "no" if seen.get("forgets") else f"{seen['resumes']}{how}"
        can = f"  can: {' '.join(seen['capabilities'])}  resume: {resume}" if seen["capabilities"] else ""
        rows.insert(0, clean(f"program: {seen['program']} {seen['version']}{can}"))
    return [Text(row, "dim", overflow="fold") for row in rows]


def route_view(decision: Record) -> Table:
    """What each layer found, bold, and below it why."""
    reasons = decision["reasons"]
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, found, why in (
        ("agent", decision["agent"], _route_agent(reasons["agent"])),
        ("session", decision["session"], _why(reasons["session"]["reason"])),
        ("role", decision["role"], _role(reasons["role"])),
        ("workspace", decision["workspace"], _why(f"from {reasons['workspace']['source']}")),
        ("priority", str(decision["priority"]), _why(reasons["priority"]["reason"])),
        ("text", decision["text"] or "(none)", None),
    ):
        parts: list[RenderableType] = [Text(clean(found), "bold", overflow="fold")]
        table.add_row(Text(name, "dim"), Group(*parts, *([] if why is None else [why])))
    return table


def checks_table(checks: Sequence[Record]) -> Table:
    """One line a check of ``pool doctor``; what to do stands below what was found."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    for check in checks:
        mark, style = _VERDICTS[check["verdict"]]
        found = Text(clean(check["found"]))
        if check["fix"]:
            found.append(f"\n-> {clean(check['fix'])}", style)
        table.add_row(Text(mark, style), Text(check["name"], "bold"), found)
    return table


def _route_agent(finding: Record) -> RenderableType:
    why = _why(finding["reason"])
    return Group(why, _bindings(finding)) if finding["bindings"] else why


def _bindings(finding: Record) -> Table:
    """Every binding that was looked at, the chosen one marked."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for binding in finding["bindings"]:
        is_chosen = binding["index"] == finding["binding"]
        held = binding["score"] is not None
        came_of_it = f"score {binding['score']}" if held else clean(binding["failed"])
        table.add_row(
            Text("*" if is_chosen else " ", "green"),
            Text(f"binding {binding['index'] + 1}", "" if held else "dim"),
            Text(clean(binding["agent"]), "" if held else "dim"),
            Text(came_of_it, "green" if is_chosen else "" if held else "dim", overflow="fold"),
        )
    return table


def _role(finding: Record) -> Text:
    unset = f"; not set: {', '.join(finding['unset'])}" if finding["unset"] else ""
    return _why(f"from {finding['source']}{unset}")


def _why(text: str) -> Text:
    return Text(clean(text), "dim", overflow="fold")


def _profiles_table(profiles: Sequence[Record], width: int) -> TableRows | Text:
    columns = [
        Column("PROFILE", lambda p: clean(p["profile"])),
        Column("AGENT/ROLE", _agent_and_role, stretches=True),
        Column("LIVE", lambda p: clean(p["live"]), right=True),
        Column("WARM", lambda p: f"{p['warm']}/{p.get('min', 0)}", right=True),
        Column("WAITING", lambda p: clean(p.get("waiting", 0)), right=True, optional=1),
        Column("RESTARTS", lambda p: clean(p["restarts"]), right=True, optional=2),
        Column("BREAKER", lambda p: _state(p["breaker"], closed="green")),
        Column("LAST ERROR", lambda p: clean(p["last_error"]), stretches=True),
    ]
    return make_table(columns, profiles, width, empty="no profiles")


def _latency_table(latency: dict[str, Record]) -> TableRows | Text:
    columns = [
        Column("LATENCY", lambda q: clean(q["name"])),
        Column("P50", lambda q: format_duration(q["p50"] if q["count"] else None), right=True),
        Column("P99", lambda q: format_duration(q["p99"] if q["count"] else None), right=True),
        Column("MAX", lambda q: format_duration(q.get("max") if q["count"] else None), right=True),
        Column("COUNT", lambda q: clean(q["count"]), right=True),
    ]
    return make_table(columns, [{"name": name, **figures} for name, figures in latency.items()], UNBOUNDED, empty="")


def _headline(document: Record) -> Text:
    pool = document["pool"]
    return Text.assemble(
        ("pool ", "bold"),
        _state(pool["mode"]),
        (f"  {pool['total']}/{pool['max']} workers", "bold"),
        f"  {pool['leased']} leased  {pool['idle']} idle  {pool['starting']} starting  {pool['stopping']} stopping  ",
        (f"{pool['waiting']} waiting", "yellow" if pool["waiting"] else ""),
    )


def _supervisor_line(document: Record) -> Text:
    facts = document["supervisor"]
    text = f"pid {facts['pid']}, up {format_duration(facts['uptime'])}, version {facts['version']}, {facts['socket']}"
    http = facts.get("http")
    return Text(clean(f"{text}, {http['url']}" if http else text), "dim", overflow="fold")


def _counter_lines(document: Record) -> Text:
    counters = document["counters"]
    states = Counter(states_in_status(document).values())
    sessions = "  ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    lines = [
        f"sessions  {sessions}",
        f"workers   {counters['spawned']} spawned  {_by_name(counters['exits']) or 'none ended'}{_stalled(counters)}",
        f"grants    {_by_name(counters['grants']) or 'none'}",
        "waiters   " + "  ".join(f"{counters[name]} {name}" for name in ("enqueued", "served", "expired", "refused")),
    ]
    if document["waiting"]:
        lines[-1] += f"  longest wait {format_duration(max(waiter['waited'] for waiter in document['waiting']))}"
    return Text("\n".join(clean(line) for line in lines))


def _stalled(counters: Record) -> str:
    return f"  {counters['stalled']} turns stalled" if counters["stalled"] else ""


def _by_name(counts: dict[str, int]) -> str:
    return "  ".join(f"{count} {name}" for name, count in counts.items() if count)


def _guarantee(document: Record) -> Text:
    return Text(clean(f"orphans   {document['guarantee']['level']}: {document['guarantee']['text']}"))


def _gateway_lines(gateway: Record, place: str) -> list[Text]:
    """Runs, what bounds them, events, the store; emphasised where action is needed."""
    lanes, store = gateway["lanes"], gateway["store"]
    lines = [Text(clean(f"runs      {gateway['runs']} live  {lanes['waiting']} waiting{_lanes(lanes['lanes'])}"))]
    lines += _hold_lines(gateway["holds"])
    lines += approval_lines(gateway["permissions"], place)
    lines.append(
        Text(clean(f"events    head {gateway['events']['head']}  {gateway['events']['sleeping']} readers waiting"))
    )
    lines += autonomy_lines(gateway["autonomy"])
    if store["degraded"]:
        trouble = (
            f"REFUSED: {store['last_error']}; {store['rows_waiting']} rows are held in memory, {store['lost']} lost"
        )
        lines.append(Text.assemble("store     ", (clean(trouble), "bold red")))
    else:
        lines.append(Text(clean(f"store     {store['rows_written']} rows written  {store['rows_waiting']} waiting")))
    return lines


def _hold_lines(holds: Record) -> list[Text]:
    """Who holds a worker, and who waits to."""
    lines = []
    for hold in holds["oldest"]:
        has = f"worker {hold['worker']} for {format_duration(hold['age'])}"
        if hold["worker"] is None:
            has = f"has waited {format_duration(hold['age'])}, {format_duration(hold['expires_in'])} left"
        lines.append(Text(clean(f"hold      {short_key(hold['session'])}  {has}  by {hold['principal']}")))
    more = holds["granted"] + holds["waiting"] - len(lines)
    return [*lines, Text(f"          and {more} more")] if more > 0 else lines


def _lanes(lanes: Sequence[Record]) -> str:
    """The named lanes that bound something."""
    bounded = [lane for lane in lanes if lane["limit"] is not None]
    return "".join(
        f"  lane {lane['name']} {lane['running']}/{lane['limit']}, {lane['waiting']} waiting" for lane in bounded
    )


def _worker_state(worker: Record) -> Text:
    state = _state("suspended" if worker.get("suspended") else worker["state"])
    if worker["stray_lines"]:
        state = Text.assemble(state, (f", {worker['stray_lines']} stray lines", "yellow"))
    if worker["background"]:
        state = Text.assemble(state, f", {worker['background']} in background")
    if (worker.get("report") or {}).get("strategy") == "refed":
        state = Text.assemble(state, (", refed", "yellow"))
    return Text.assemble(state, (f", retiring: {worker['retiring']}", "dim")) if worker.get("retiring") else state


def _agent_and_role(record: Record) -> str:
    return clean(f"{record['agent']}/{record['role']}")


def _state(name: str, **styles: str) -> Text:
    return Text(clean(name), {**_STATE_STYLES, **styles}.get(name, ""))
