"""Heartbeats and scheduled jobs on the terminal: what is shown at which width, and nothing an agent says moves it."""

from typing import Any

import msgspec
import pytest

from commands.autonomy_view import beat_text, heartbeats_view, job_started_text, job_text, jobs_view
from heartbeat.cron.requests import CronJobPage, CronJobView
from heartbeat.gates import SkipReason
from heartbeat.records import BeatReport, HeartbeatStatus
from tests.doors.terminal import draw

NOW = 1_700_000_000.0
BEAT = {
    "agent": "main",
    "session": "agent:main:main:main",
    "reason": "interval",
    "outcome": "alert",
    "at": NOW - 125,
    "took": 3.2,
    "text": "The disk is full.\x1b[2J",
}
AGENTS: list[dict[str, Any]] = [
    {
        "agent": "main",
        "wake": True,
        "every": 290.0,
        "next_due": NOW + 165,
        "running": [],
        "warning": "",
        "last_beat": BEAT,
        "last_skip": None,
        "counts": {"silent": 4, "alert": 2, "skipped": 9},
        "paused": {},
    },
    {
        "agent": "ops",
        "wake": False,
        "every": 0.0,
        "next_due": None,
        "running": [],
        "warning": "",
        "last_beat": None,
        "counts": {},
        "paused": {},
        "last_skip": {**BEAT, "agent": "ops", "outcome": "skipped", "skipped": "disabled", "at": NOW - 5},
    },
    {
        "agent": "night-watch",
        "wake": True,
        "every": 60.0,
        "next_due": NOW,
        "running": ["s"],
        "last_beat": {**BEAT, "outcome": "failed", "error": "no model"},
        "last_skip": None,
        "counts": {"failed": 1},
        "paused": {"agent:night-watch:main:main": NOW + 299},
        "warning": "active_hours.end = '25:00' is no time",
    },
]
OUTCOME = {
    "run": "r1",
    "due": NOW - 61,
    "started_at": NOW - 60,
    "ended_at": NOW - 48,
    "status": "failed",
    "text": "",
    "error": "the model is ill",
}
JOB: dict[str, Any] = {
    "id": "standup",
    "schedule": {"type": "cron", "expression": "0 9 * * mon-fri", "tz": "Europe/Berlin"},
    "when": "cron 0 9 * * mon-fri (Europe/Berlin)",
    "text": "Prepare the stand-up.",
    "mode": "isolated",
    "agent": "main",
    "session": "agent:main:main:main",
    "delivery": "webhook:ops",
    "timeout": 600.0,
    "keep": False,
    "delete_after_run": False,
    "enabled": True,
    "source": "settings",
    "next_due": NOW + 3700,
    "running_since": None,
    "is_waiting": False,
    "failures": 3,
    "hold_until": None,
    "overlapped": 0,
    "last": OUTCOME,
    "history": [OUTCOME],
    "problem": None,
    "heard_at": None,
}
JOBS = {
    "jobs": [JOB, {**JOB, "id": "tea", "enabled": False, "last": None}],
    "total": 5,
    "more": True,
    "problems": ["x"],
}


def rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in text.splitlines() if line.split()}


def test_the_documents_are_what_a_supervisor_sends() -> None:
    msgspec.convert(AGENTS, list[HeartbeatStatus])
    msgspec.convert({**JOBS, "jobs": []}, CronJobPage)
    assert set(JOB) == set(CronJobView.__struct_fields__)
    assert set(BEAT) <= set(BeatReport.__struct_fields__)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_each_agent_has_a_line_with_what_matters_at_any_width(width: int) -> None:
    shown = draw(heartbeats_view(AGENTS, width, NOW), width)
    assert max(len(line) for line in shown.splitlines()) <= width
    lines = rows(shown)
    assert lines["main"][1:8] == ["4m50s", "2m45s", "2m05s", "ago", "alert", "-", *lines["main"][7:8]]
    assert lines["ops"][1:6] == ["off", "-", "-", "-", "disabled"]
    assert lines["night-watch"][1:3] == ["1m00s", "now"]
    assert "\x1b" not in shown


def test_a_wide_terminal_has_what_was_said_and_how_often() -> None:
    shown = draw(heartbeats_view(AGENTS, 140, NOW), 140)
    assert "6 (2 alerts)" in shown
    assert "wake" in rows(shown)["main"]
    assert "wait" in rows(shown)["ops"]
    assert "The disk is full." in shown


def test_what_somebody_should_see_to_stands_below() -> None:
    shown = " ".join(draw(heartbeats_view(AGENTS, 80, NOW), 80).split())
    assert "night-watch: no model" in shown
    assert "night-watch: active_hours.end = '25:00' is no time" in shown
    assert "night-watch: events of agent:night-watch:main:main wake no agent for 4m59s" in shown


def test_without_agents_there_is_a_word() -> None:
    assert draw(heartbeats_view([], 80, NOW), 80) == "no agents"


@pytest.mark.parametrize("reason", SkipReason)
def test_every_reason_for_no_beat_is_said_in_words(reason: SkipReason) -> None:
    text = beat_text({**BEAT, "outcome": "skipped", "skipped": reason.value}).plain
    assert text.startswith("main does not beat: ")
    assert reason.value not in text
    assert "{" not in text


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


@pytest.mark.parametrize("width", [80, 120])
def test_each_job_has_a_line_and_troubles_stand_below(width: int) -> None:
    shown = draw(jobs_view(JOBS, width, NOW), width)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert "cron 0 9 * * mon-fri (Europe/Berlin)" in shown
    assert rows(shown)["standup"][-6:] != []
    assert "failed x3" in shown
    assert "off" in rows(shown)["tea"]
    assert "5 in all; the others: pool cron list --after tea" in shown
    assert shown.splitlines()[-1] == "x"


def test_a_job_that_runs_or_waits_says_so() -> None:
    running, waiting = {**JOB, "running_since": NOW}, {**JOB, "id": "b", "is_waiting": True}
    shown = rows(draw(jobs_view({**JOBS, "jobs": [running, waiting]}, 120, NOW), 120))
    assert "now" in shown["standup"]
    assert "waits" in shown["b"]


def test_one_job_is_shown_with_all_of_it_and_its_history() -> None:
    shown = draw(job_text(JOB, 80, NOW), 80)
    for words in (
        "in 1h01m",
        "isolated, agent main",
        "webhook:ops",
        "Prepare the stand-up.",
        "the model is ill",
        "12 s",
    ):
        assert words in shown
    assert "it has not run yet" in draw(job_text({**JOB, "history": []}, 80, NOW), 80)
    assert "as the agent's heartbeats are" in draw(job_text({**JOB, "mode": "main"}, 80, NOW), 80)


STUCK = {**JOB, "mode": "main", "problem": "events do not wake agent main"}


def test_a_job_that_would_not_run_says_why_wherever_it_is_shown() -> None:
    listed = draw(jobs_view({**JOBS, "jobs": [STUCK, {**STUCK, "id": "off", "enabled": False}]}, 120, NOW), 120)
    assert "standup: events do not wake agent main" in listed
    assert "off: events" not in listed
    assert "  events do not wake agent main" in draw(job_text(STUCK, 120, NOW), 120)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "standup is begun; see: pool cron get standup"),
        ({"is_waiting": True}, "standup waits for another job's run to end (cron.max_running); see: pool cron get "),
        ({"mode": "main"}, "standup: agent main is woken for it in session agent:main:main:main"),
    ],
)
def test_what_happens_to_a_job_that_is_run_by_hand_is_said(changes: dict[str, Any], said: str) -> None:
    assert job_started_text({**JOB, **changes}).startswith(said)


def test_when_an_agent_is_woken_later_for_a_job_is_said() -> None:
    assert job_started_text({**JOB, "mode": "main", "heard_at": NOW}).endswith("not before (active hours, flood guard)")
