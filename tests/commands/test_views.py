"""What tables and lines look like on the terminal, and that nothing in a document can break the picture."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Group, RenderableType

from commands.autonomy_view import autonomy_lines, beat_text, heartbeats_view, job_started_text, job_text, jobs_view
from commands.event_text import resumption_text
from commands.session_view import history_view, session_view
from commands.tables import (
    checks_table,
    explanation_table,
    route_view,
    sessions_view,
    status_view,
    waiting_table,
    workers_table,
)
from gateway.methods.operator import StatusDocument
from gateway.sessions.admin import SessionView
from heartbeat.cron.requests import CronJobPage, CronJobView
from heartbeat.gates import SkipReason
from heartbeat.records import BeatReport, HeartbeatStatus
from profiles import AgentSettings, ProfilesSettings
from router.route import route
from router.settings import Binding, RouterSettings
from router.source import MessageSource
from tests.commands.documents import AGENTS, BEAT, DOCUMENT, JOB, JOBS, NOW, SESSION_VIEWS, waiter, worker
from tests.commands.terminal import draw

EVIL = "\x1b[2J[red]evil\r\n"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def with_gateway(**changes: Any) -> dict[str, Any]:
    return {**DOCUMENT, "gateway": {**DOCUMENT["gateway"], **changes}}


# --- the status and its listings -------------------------------------------------------------------------------------

STATUS = """\
pool paused  4/4 workers  2 leased  1 idle  1 starting  0 stopping  1 waiting
pid 4242, up 1d02h, version 0.1.0, /run/p.sock

WORKER     PID  STATE                     SESSION  TURN  TURNS    AGE     RSS
w1      100001  leased                    ada      12 s     12  1h02m  96 MiB
w2      100001  suspended, 3 stray lines  -           -     12  1h02m  96 MiB

#  REQUEST  SESSION  PRIORITY  WAITED  WHY
1  r1       grace         6.5   4.6 s  all 4 workers are busy

PROFILE   AGENT/ROLE    LIVE  WARM  WAITING  RESTARTS  BREAKER  LAST ERROR
a1b2c3d4  main/default     3   1/1        1         2  open     boom

LATENCY     P50     P99    MAX  COUNT
acquire  0.4 ms  120 ms  3.2 s      3
reset         -       -      -      0
spawn         -       -      -      0
turn          -       -      -      0

sessions  1 approval  1 failed
workers   9 spawned  2 evicted  1 crashed  1 turns stalled
grants    120 bound
waiters   20 enqueued  17 served  1 expired  0 refused  longest wait 4.6 s
orphans   cgroup: nothing survives
runs      3 live  1 waiting  lane cron 1/1, 4 waiting
hold      ada  worker w3 for 1m01s  by uid:7
hold      bob  has waited 5.0 s, 25 s left  by uid:7
          and 21 more
asks      ada: exec ls
          pool approve -s ada c1
events    head 10234  5 readers waiting
beats     3 agents  1 under way
jobs      5  1 running  0 waiting  2 failing
          job old of the settings cannot be used
alerts    7 accepted  1 waiting
          1 for webhook:ops: status 500
alerts    UNDELIVERED to webhook:old (2023-11-14 22:13:20, main): The disk is
full.: gone
store     77 rows written  2 waiting"""
WIDE_WORKERS = """\
WORKER     PID  STATE                     SESSION  AGENT/ROLE    TURN  TURNS    AGE     RSS    CPU   PING  PROFILE
w1      100001  leased                    ada      main/default  12 s     12  1h02m  96 MiB  3.2 s  4.2 s  a1b2c3d4"""


def test_the_status_shows_figures_workers_waiters_profiles_and_latencies_and_more_on_a_wide_terminal() -> None:
    assert draw(status_view(DOCUMENT, 80), 80) == STATUS
    assert WIDE_WORKERS in draw(status_view(DOCUMENT, 140), 140)
    assert max(map(len, draw(status_view(DOCUMENT, 60), 60).splitlines())) <= 60


def test_the_documents_are_what_a_supervisor_sends() -> None:
    for document, kind in ((DOCUMENT, StatusDocument), *((view, SessionView) for view in SESSION_VIEWS)):
        assert json.loads(msgspec.json.encode(msgspec.convert(document, kind))) == document
    msgspec.convert(AGENTS, list[HeartbeatStatus])
    msgspec.convert({**JOBS, "jobs": []}, CronJobPage)
    assert set(JOB) == set(CronJobView.__struct_fields__)
    assert set(BEAT) <= set(BeatReport.__struct_fields__)


def test_what_needs_attention_is_emphasised_and_what_is_many_is_counted() -> None:
    refused = {**DOCUMENT["gateway"]["store"], "degraded": True, "last_error": "disk full", "lost": 7}
    shown = draw(status_view(with_gateway(store=refused), 140), 140)
    assert "REFUSED: disk full; 2 rows are held in memory, 7 lost" in shown
    many = [waiter(request=f"r{number}", session=f"s{number}", position=number) for number in range(1, 10_001)]
    shown = draw(status_view({**DOCUMENT, "waiting": many}, 140))
    assert ("s20 " in shown, "s21 " in shown) == (True, False)
    assert "... and 9980 more; `pool waiting` lists them all" in shown
    kept = worker("w1", state="leased", retiring="age", background=2)
    assert "leased, 2 in background, retiring: age" in draw(workers_table([kept], 160))


def test_of_hundreds_of_alerts_that_nobody_got_the_latest_are_shown_a_line_each() -> None:
    autonomy = DOCUMENT["gateway"]["autonomy"]
    (lost,) = autonomy["alerts"]["undeliverable"]
    many = [{**lost, "agent": f"agent{count}", "text": "The disk\n\nis full."} for count in range(200)]
    figures = {**autonomy, "alerts": {**autonomy["alerts"], "undeliverable": many}}
    *shown, rest = [line.plain for line in autonomy_lines(figures) if "deliver" in line.plain.lower()]
    assert [line.partition(", ")[2] for line in shown] == [
        f"agent{n}): The disk is full.: gone" for n in range(195, 200)
    ]
    assert rest.split()[0] == "195"


def test_nothing_a_stranger_chose_reaches_the_terminal_raw() -> None:
    shown = draw(
        Group(
            workers_table([worker("w1", session=EVIL, role=EVIL)], 140),
            waiting_table([waiter(session=EVIL, why=EVIL)], 140),
            sessions_view([{**SESSION_VIEWS[0], "key": EVIL, "transcript": EVIL}], 140),
            history_view({"messages": [{"role": EVIL, "content": EVIL}]}, 140),
            *(history_view({"messages": [{"role": "a", "content": [{"type": kind, kind: EVIL}]}]}, 140)
              for kind in ("text", "thinking")),
        )
    )  # fmt: skip
    assert not set("\x1b\r") & set(shown)
    assert "[red]evil" in shown


SESSIONS = """\
SESSION  STATE     WORKER  WAITING  ASKS  AGENT/ROLE    USED         TRANSCRIPT
ada      approval  w1            2     1  main/default  01-01 00:00  2026.jsonl
bob      idle      -             0     -  main/default  01-01 00:00  -

asks      ada: exec ls (it is listed)
          pool approve -s ada c1"""


def test_a_session_is_listed_with_what_it_does_and_what_it_asks_and_waits_for() -> None:
    assert draw(sessions_view(SESSION_VIEWS, 140)) == SESSIONS
    narrow = draw(sessions_view(SESSION_VIEWS, 60)).splitlines()[0]
    assert narrow == "SESSION  STATE     WORKER  WAITING  ASKS  AGENT/ROLE"
    waiting = {**SESSION_VIEWS[1], "state": "WORKING", "waits_for": "the pool is paused"}
    lines = draw(sessions_view([SESSION_VIEWS[0], waiting], 140)).splitlines()
    assert "WAITS FOR" in lines[0]
    assert lines[2].startswith("bob      waiting   -             0  the pool is paused")


def test_a_long_key_is_shown_by_its_ends_so_that_the_table_can_be_read_in_a_pipe() -> None:
    key = "agent:main:" + "x" * 490 + ":topic:77"
    asked = {"session": key, "call": {"id": "c1", "name": "exec", "input_preview": "ls"}}
    for view in (
        workers_table([worker("w1", session=key)], 500),
        waiting_table([waiter(session=key)], 500),
        sessions_view([{**SESSION_VIEWS[0], "key": key}], 500),
        status_view(with_gateway(permissions=[asked]), 500),
    ):
        shown = draw(view, 500)
        assert "agent:main:xxx" in shown
        assert ":topic:77" in shown
        assert max(len(line) for line in shown.splitlines() if "pool approve" not in line) < 250


EXPLANATION = """\
wanted: main/reviewer  profile a1b2c3d4

WORKER  MATCH  STATE   SESSION  DIFFERENCE
w1      hard   idle    -        -
w2      none   leased  -        role default, wanted reviewer"""


def test_an_explanation_names_the_level_and_the_difference_of_every_worker() -> None:
    other = {"worker": "w2", "level": "none", "difference": "role default, wanted reviewer", "state": "leased"}
    explanation = {
        "profile": {"signature": "a1b2c3d4", "agent": "main", "role": "reviewer", "cwd": "/"},
        "workers": [{"worker": "w1", "level": "hard", "difference": "", "state": "idle", "session": None}, other],
    }
    assert draw(explanation_table(explanation, 140)) == EXPLANATION
    seen = {"program": "fake-agent", "version": "1.0.0", "capabilities": ["load", "close"], "resumes": "yes"}
    told = {**explanation, "seen": seen, "report": {"model": "fake-1", "strategy": "loaded"}}
    assert draw(explanation_table(told, 140)).splitlines()[:4] == [
        EXPLANATION.splitlines()[0],
        "program: fake-agent 1.0.0  can: load close  resume: yes",
        "model: fake-1",
        "strategy: loaded: the agent has loaded the conversation",
    ]


def test_a_check_shows_what_to_do_below_what_was_found() -> None:
    check = {"name": "memory", "verdict": "missing", "found": "too little", "fix": "set pool.max to 2"}
    assert draw(checks_table([check])) == "MISSING  memory  too little\n                 -> set pool.max to 2"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (workers_table, "no workers"),
        (waiting_table, "no requests waiting"),
        (sessions_view, "no sessions"),
        (heartbeats_view, "no agents"),
    ],
)
def test_an_empty_listing_says_so(table: Callable[[list[dict[str, Any]], int], RenderableType], words: str) -> None:
    assert draw(table([], 80)).strip() == words


# --- heartbeats and scheduled jobs -----------------------------------------------------------------------------------

HEARTBEATS_60 = """\
AGENT        EVERY   NEXT       LAST  OUTCOME  SKIPPED
main         4m50s  2m45s  2m05s ago  alert    -
ops            off      -          -  -        disabled
night-watch  1m00s    now  2m05s ago  failed   -
night-watch: events of agent:night-watch:main:main wake no
agent for 4m59s: too many came
night-watch: active_hours.end = '25:00' is no time
night-watch: no model"""
HEARTBEATS_118 = r"""
AGENT        EVERY   NEXT       LAST  OUTCOME  SKIPPED        WHEN  WOKEN BY  EVENTS         BEATS  SAID
main         4m50s  2m45s  2m05s ago  alert    -                 -  interval  wake    6 (2 alerts)  The disk is full.…
ops            off      -          -  -        disabled  5.0 s ago  -         wait               0  -
"""
JOBS_80 = """\
JOB      WHEN                                   NEXT      LAST  OUTCOME
standup  cron 0 9 * * mon-fri (Europe/Berlin)  1h01m  48 s ago  failed x3
tea      cron 0 9 * * mon-fri (Europe/Berlin)    off         -  -
5 in all; the others: pool cron list --after tea
x"""
JOBS_120 = """
JOB      WHEN                                   NEXT      LAST  OUTCOME    MODE      AGENT  FROM      TEXT
standup  cron 0 9 * * mon-fri (Europe/Berlin)  1h01m  48 s ago  failed x3  isolated  main   settings  Prepare the stand…
"""
ONE_JOB = """\
standup
  when      cron 0 9 * * mon-fri (Europe/Berlin)
  next      2023-11-14 23:15:00, in 1h01m
  mode      isolated, agent main, session agent:main:main:main
  delivery  webhook:ops
  from      settings
  Prepare the stand-up.

STARTED              TOOK  OUTCOME  SAID
2023-11-14 22:12:20  12 s  failed   the model is ill"""


def test_heartbeats_and_jobs_have_a_line_each_at_any_width_and_troubles_below() -> None:
    assert draw(heartbeats_view(AGENTS, 60, NOW), 60) == HEARTBEATS_60
    assert HEARTBEATS_118.lstrip() in draw(heartbeats_view(AGENTS, 118, NOW), 118)
    assert draw(jobs_view(JOBS, 80, NOW), 80) == JOBS_80
    assert JOBS_120.lstrip() in draw(jobs_view(JOBS, 120, NOW), 120)
    assert draw(job_text(JOB, 80, NOW), 80) == ONE_JOB
    assert "it has not run yet" in draw(job_text({**JOB, "history": []}, 80, NOW), 80)
    assert "as the agent's heartbeats are" in draw(job_text({**JOB, "mode": "main"}, 80, NOW), 80)


def test_a_job_that_runs_or_waits_says_so_and_one_that_would_not_run_says_why() -> None:
    running, waiting = {**JOB, "id": "a", "running_since": NOW}, {**JOB, "id": "b", "is_waiting": True}
    stuck = {**JOB, "mode": "main", "problem": "events do not wake agent main"}
    jobs = [running, waiting, stuck, {**stuck, "id": "off", "enabled": False}]
    shown = draw(jobs_view({**JOBS, "jobs": jobs}, 120, NOW), 120)
    rows = {line.split()[0]: line.split() for line in shown.splitlines()}
    assert ("now" in rows["a"], "waits" in rows["b"]) == (True, True)
    assert ("standup: events do not wake agent main" in shown, "off: events" in shown) == (True, False)
    assert "  events do not wake agent main" in draw(job_text(stuck, 120, NOW), 120)


@pytest.mark.parametrize("reason", SkipReason)
def test_every_reason_for_no_beat_is_said_in_words(reason: SkipReason) -> None:
    text = beat_text({**BEAT, "outcome": "skipped", "skipped": reason.value}).plain
    assert text.startswith("main does not beat: ")
    assert (reason.value in text, "{" in text) == (False, False)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"outcome": "silent"}, "main is well: nothing to report in 3.2 s"),
        ({"outcome": "repeated"}, "main has nothing new: it reported the same within the last day in 3.2 s"),
        ({"outcome": "alert", "text": "Full."}, "main reports in 3.2 s:\nFull."),
        ({"outcome": "failed", "error": "no model"}, "the beat of main failed in 3.2 s: no model"),
        ({"outcome": "silent", "took": 0, "problem": "odd"}, "main is well: nothing to report\nwarning: odd"),
    ],
)
def test_what_came_of_a_beat_is_said_in_words(report: dict[str, Any], words: str) -> None:
    assert beat_text({**BEAT, **report}).plain == words


WOKEN = "standup: agent main is woken for it in session agent:main:main:main"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "standup is begun; see: pool cron show standup"),
        (
            {"is_waiting": True},
            "standup waits for another job's run to end (cron.max_running); see: pool cron show standup",
        ),
        ({"mode": "main"}, WOKEN),
        (
            {"mode": "main", "heard_at": NOW},
            f"{WOKEN} at 2023-11-14 22:13:20, not before (active hours, flood guard)",
        ),
    ],
)
def test_what_happens_to_a_job_that_is_run_by_hand_is_said(changes: dict[str, Any], said: str) -> None:
    assert job_started_text({**JOB, **changes}) == said


# --- a route, a session ----------------------------------------------------------------------------------------------

ROUTE = """\
agent      coder
           binding 2 of 2 matches with score 1
              binding 1  main   channel is telegram, not discord
           *  binding 2  coder  score 1
session    agent:coder:telegram:account:default:group:-100
           one conversation for each group
role       default
           from default; not set: telegram.groups.-100.role, telegram.groups.*.role,
           telegram.accounts.default, telegram.default, agents.coder
workspace  /data/workspaces/default
           from default
priority   5
           a message in a group
text       hello"""


def test_a_route_is_shown_layer_by_layer_with_its_reasons() -> None:
    def picture(text: str, channel: str) -> str:
        bindings = [Binding(agent="main", channel="discord", guild="g1"), Binding(agent="coder", channel="telegram")]
        profiles = ProfilesSettings(agents={"main": AgentSettings(), "coder": AgentSettings()})
        message = MessageSource(chat_type="group", chat_id="-100", sender_id="7", channel=channel)
        decision = route(RouterSettings(bindings=bindings), profiles, message, text, data_dir=Path("/data"))
        return draw(route_view(msgspec.to_builtins(decision)), 100)

    assert picture("hello", "telegram") == ROUTE
    prefixed = picture("/coder look", "sms")
    assert "the text begins with /coder" in prefixed
    assert prefixed.endswith("text       look")
    assert picture("", "sms").endswith("text       (none)")
    assert "\x1b" not in picture("\x1b[2J", "sms")


HISTORY: list[dict[str, Any]] = json.loads("""[
{"role": "user", "content": "plain"},
{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "two\\nlines\\n"},
    {"type": "tool_use", "id": "c", "name": "exec", "input": {"cmd": "ls"}}]},
{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": true}]},
{"role": "assistant", "content": [{"type": "toolCall", "name": "read", "arguments": {"a": 1}}]},
{"role": "user", "content": [{"type": "image", "data": "xx"}, {"type": "of the future"}]},
{"role": "user", "content": "left", "origin": "steer"},
{"role": "user", "content": []}]""")


def test_a_session_is_shown_with_what_is_known_of_it_and_its_messages_with_what_the_tools_did() -> None:
    known = {"key": "ada", "state": "READY", "model": None, "source": {"channel": "sms", "chat_id": "a b"}}
    shown = draw(session_view({**known, "created_at": 0.0}), 60)
    assert shown == (
        'key         ada\nstate       idle\nsource      channel=sms  chat_id="a b"\ncreated_at  1970-01-01 00:00:00'
    )
    assert draw(history_view({"messages": HISTORY}, 60), 60).splitlines() == [
        *("user", "plain", ""),
        *("assistant", "(hm)", "two", "lines", '· exec {"cmd":"ls"}', ""),
        *("user", "! no", ""),
        *("assistant", '· read {"a":1}', ""),
        *("user", "(an image)", ""),
        *("user, into the running turn", "left"),
    ]
    assert draw(history_view({"messages": []}, 60), 60) == "nothing was said yet"


def test_a_history_says_where_an_agent_was_fed_the_end_of_the_conversation_again() -> None:
    messages = [{"role": "user", "content": "one"}, {"role": "user", "content": "two", "strategy": "refed"}]
    lines = draw(history_view({"messages": messages}, 120), 120).splitlines()
    assert lines[3:] == [f"({resumption_text('refed')})", "", "user", "two"]
