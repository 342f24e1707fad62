"""Heartbeats in virtual time: intervals, alerts, status, settings, restarts, callers that wait, faults, floods."""

import math
from typing import Any

import pytest
import trio

from errors import PoolError, UsageError
from heartbeat.answers import HEARTBEAT_PROMPT
from heartbeat.gates import SkipReason
from heartbeat.ports import BeatAnswer, BeatRequest
from heartbeat.records import BeatOutcome, BeatReport
from heartbeat.settings import ActiveHours, HeartbeatSettings
from heartbeat.wake import WakeReason
from tests.heartbeat.worlds import (
    EPOCH,
    MAIN,
    MIDNIGHT,
    OK,
    ON,
    SELDOM,
    World,
    answers,
    but,
    fails,
    report_all,
    status_of,
    wake,
)
from wire.units import Seconds

LONG = "The disk is full. " * 20


async def test_an_agent_beats_once_an_interval_give_or_take_a_tenth(world: World) -> None:
    await world.serve()
    await trio.sleep(3600)
    assert 10 <= len(world.started) <= 14
    assert 270 <= world.gaps[0] <= 330
    assert world.gaps == pytest.approx([world.gaps[0]] * len(world.gaps))
    assert {(request.room_only, request.priority, request.touch) for request in world.started} == {(True, 3, False)}
    assert (world.alerts, world.active) == ([], []), "a beat that finds nothing leaves no trace"


@pytest.mark.parametrize("wakes", [True, False])
async def test_without_an_interval_only_operators_and_where_set_events_make_an_agent_beat(
    world: World, *, wakes: bool
) -> None:
    heartbeat = await world.serve(HeartbeatSettings(wake=wakes))
    assert (heartbeat.wakes_on_events("main"), heartbeat.wakes_on_events("unknown")) == (wakes, False)
    assert (status_of(heartbeat).wake, status_of(heartbeat).next_due) == (wakes, None)
    await trio.sleep(3600)
    assert world.started == []
    world.inject("make has finished")
    assert heartbeat.wake("main", WakeReason.EXEC) is wakes
    await trio.sleep(2)
    assert len(world.started) == wakes
    assert (await heartbeat.run_now("main", WakeReason.HOOK)).skipped is (None if wakes else SkipReason.DISABLED)
    assert (await heartbeat.run_now("main")).skipped is None


async def test_other_settings_hold_at_once_and_unchanged_agents_keep_their_time(world: World) -> None:
    heartbeat = await world.serve(ON, other=ON)
    await trio.sleep(100)
    before = status_of(heartbeat).next_due
    heartbeat.reconfigure({"main": ON, "other": but(every=Seconds(60)), "new": ON})
    assert status_of(heartbeat).next_due == before
    await trio.sleep(70)
    assert [request.agent for request in world.started] == ["other"]
    heartbeat.reconfigure({"main": HeartbeatSettings()})
    await trio.sleep(3600)
    assert len(world.started) == 1
    assert [status.agent for status in heartbeat.status()] == ["main"]


async def test_what_is_kept_of_an_agent_is_removed_with_it(world: World) -> None:
    heartbeat = await world.serve()
    for answer, events in ((answers(LONG), []), (fails(), ["one"])):
        world.answer = answer
        for text in events:
            world.inject(text)
        await heartbeat.run_now("main")
    assert all(world.disk.documents[kind] for kind in ("beat", "beat_alerts", "beat_begun"))
    heartbeat.reconfigure({})
    assert not any(world.disk.documents.values())


async def test_a_restart_keeps_the_interval(world: World) -> None:
    await world.serve(but(every=Seconds(3600)))
    await trio.sleep(3970)
    assert len(world.started) == 1
    world.restart()
    status = status_of(await world.open({"main": but(every=Seconds(3600))}))
    assert status.next_due is not None
    assert status.next_due - (world.wall_offset + world.started_at[0]) == pytest.approx(status.every, abs=1)


async def test_an_unreadable_record_is_skipped(world: World) -> None:
    world.disk.documents = {"beat": {"main": b"{"}, "beat_alerts": {"main": b"[1]"}, "beat_begun": {"main x": b"null"}}
    heartbeat = await world.serve()
    assert status_of(heartbeat).last_beat is None
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.SILENT


async def test_what_an_agent_finds_is_an_alert_and_counts_as_activity(world: World) -> None:
    world.answer = answers(f"{OK} The disk is full.", media=("/tmp/df.png",))
    heartbeat = await world.serve(but(target="webhook:ops"))
    report = await heartbeat.run_now("main")
    (alert,) = world.disk.alerts.values()
    assert (alert.id, alert.text, alert.media) == (report.alert, "The disk is full.", ("/tmp/df.png",))
    assert (alert.agent, alert.session, alert.reason, alert.target) == ("main", MAIN, "manual", "webhook:ops")
    assert world.active == [MAIN]


async def test_the_same_alert_is_shown_once_a_day_also_by_the_next_supervisor(world: World) -> None:
    world.answer = answers(LONG)
    heartbeat = await world.serve()
    outcomes = [(await heartbeat.run_now("main")).outcome for _ in range(2)]
    world.restart()
    heartbeat = await world.serve()
    outcomes.append((await heartbeat.run_now("main")).outcome)
    assert outcomes == [BeatOutcome.ALERT, BeatOutcome.REPEATED, BeatOutcome.REPEATED]
    await trio.sleep(86_400 + 400)
    assert len(world.alerts) == 2


async def test_an_alert_with_an_invalid_target_goes_to_the_event_stream(world: World) -> None:
    world.answer = answers(LONG)
    world.bad_targets.add("Invalid")
    heartbeat = await world.serve(but(target="Invalid"))
    report = await heartbeat.run_now("main")
    assert [alert.target for alert in world.disk.alerts.values()] == ["events"]
    assert report.problem == "Invalid is no target"


async def test_the_status_shows_the_last_beat_the_next_and_the_running_ones(world: World) -> None:
    heartbeat = await world.serve(ON, quiet=HeartbeatSettings(active_hours=ActiveHours(start="25:00", end="09:00")))
    await trio.sleep(400)
    main, quiet = heartbeat.status()
    assert main.last_beat is not None
    assert (main.last_beat.outcome, main.last_beat.reason) == (BeatOutcome.SILENT, WakeReason.INTERVAL)
    assert main.last_beat.took == pytest.approx(1.0)
    assert main.next_due is not None
    assert 0 < main.next_due - world.wall() < main.every
    assert (quiet.every, quiet.last_beat, quiet.last_skip, quiet.next_due) == (0.0, None, None, None)
    assert "25:00" in quiet.warning
    assert world.nursery is not None
    world.nursery.start_soon(heartbeat.run_now, "main", WakeReason.MANUAL, "alice")
    await trio.sleep(0.5)
    assert (status_of(heartbeat).running, heartbeat.stats()) == (("alice",), (1, 1))
    await trio.sleep(2)
    assert (status_of(heartbeat).running, heartbeat.stats()) == ((), (1, 0))


@pytest.mark.parametrize(
    ("hours", "expected"),
    [(("08:00", "09:00"), MIDNIGHT + 8 * 3600), (("08:00", "08:00"), math.inf), (("00:00", "24:00"), None)],
)
async def test_it_is_known_when_an_event_will_wake_an_agent(
    world: World, hours: tuple[str, str], expected: float | None
) -> None:
    world.wall_offset = MIDNIGHT
    heartbeat = await world.serve(but(active_hours=ActiveHours(start=hours[0], end=hours[1], tz="UTC")))
    assert heartbeat.wakes_at("main", MAIN) == expected
    assert heartbeat.wakes_at("unknown", MAIN) is None


async def test_a_caller_gets_the_report_of_the_beat_after_the_session_was_busy(world: World) -> None:
    heartbeat = await world.serve()
    world.busy.add(MAIN)
    reports: list[BeatReport] = []

    async def ask() -> None:
        reports.append(await heartbeat.run_now("main"))

    assert world.nursery is not None
    world.nursery.start_soon(ask)
    await trio.sleep(10)
    assert reports == []
    world.busy.clear()
    await trio.sleep(5)
    assert [report.outcome for report in reports] == [BeatOutcome.SILENT]


async def test_a_caller_is_answered_after_the_timeout_and_the_beat_follows(world: World) -> None:
    heartbeat = await world.serve(but(SELDOM, timeout=Seconds(60)))
    world.busy.add(MAIN)
    with trio.fail_after(62):
        report = await heartbeat.run_now("main")
    assert (report.outcome, report.skipped, world.started) == (BeatOutcome.SKIPPED, SkipReason.BUSY, [])
    world.busy.clear()
    await trio.sleep(5)
    assert len(world.started) == 1


async def test_a_caller_during_a_beat_gets_the_report_of_the_next_one(world: World) -> None:
    heartbeat = await world.serve()
    world.run_time = 10.0
    heartbeat.wake("main", WakeReason.HOOK)
    await trio.sleep(5)
    assert (await heartbeat.run_now("main")).reason is WakeReason.MANUAL
    assert len(world.started) == 2


async def test_a_cancelled_caller_leaves_nothing_behind(world: World) -> None:
    heartbeat = await world.serve()
    world.busy.add(MAIN)
    with trio.move_on_after(5):
        await heartbeat.run_now("main")
    assert heartbeat._waiters == {}


async def test_an_unknown_agent_is_refused(world: World) -> None:
    heartbeat = await world.serve()
    with pytest.raises(UsageError, match="there are: main"):
        await heartbeat.run_now("unknown")


def raises(error: Exception) -> Any:
    def answer(_request: BeatRequest) -> BeatAnswer:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "run_time", "error", "took"),
    [
        (report_all, math.inf, "the beat had not ended after 75 s", 75),
        (raises(PoolError("no more runs today")), 1.0, "no more runs today", 1),
        (raises(ZeroDivisionError()), 1.0, "a defect of the supervisor; its log has the traceback", 0),
    ],
    ids=["it hangs", "the gateway refuses", "a defect"],
)
async def test_a_fault_in_one_beat_is_reported_and_stops_no_other(
    world: World, answer: Any, run_time: float, error: str, took: float
) -> None:
    world.answer, world.run_time = answer, run_time
    heartbeat = await world.serve(but(max_retries=0), other=ON)
    report = await heartbeat.run_now("main")
    assert (report.outcome, report.error) == (BeatOutcome.FAILED, error)
    assert report.took == pytest.approx(took)
    world.answer, world.run_time = report_all, 1.0
    for agent in ("other", "main"):
        assert (await heartbeat.run_now(agent)).outcome is BeatOutcome.SILENT


@pytest.mark.parametrize(
    ("text", "alerts"),
    [
        ("word " * 2_000_000, ["word " * 3256 + "word\n[9983715 more characters were left out]"]),
        (OK + " \n" * 5_000_000, []),
        (" \n" * 5_000_000 + "The disk is full.", ["The disk is full."]),
    ],
    ids=["words", "nothing", "words after nothing"],
)
async def test_an_answer_of_ten_megabytes_is_cut(world: World, text: str, alerts: list[str]) -> None:
    world.answer = answers(text)
    heartbeat = await world.serve()
    report = await heartbeat.run_now("main")
    assert world.alerts == alerts
    assert len(report.text) <= 200


async def test_a_beat_whose_tool_wakes_it_again_is_held_reported_and_loses_nothing(world: World) -> None:
    heartbeat = await world.serve(SELDOM)

    def loop(request: BeatRequest) -> BeatAnswer:
        wake(heartbeat, world, f"echo has finished, {len(world.started)}")
        return report_all(request)

    world.answer = loop
    wake(heartbeat, world, "echo has finished, 0")
    await trio.sleep(60)
    assert len(world.started) == 5
    (error,) = [data["message"] for type_, _, data in world.published if type_ == "error"]
    assert "again in 300 s" in error
    assert status_of(heartbeat).paused == {MAIN: pytest.approx(EPOCH + 306, abs=3)}
    await trio.sleep(3540)
    assert len(world.started) <= 60
    lines = [line for lines in world.lines for line in lines]
    assert lines == [f"echo has finished, {number}" for number in range(len(lines))]


async def flood(world: World, beats: int = 6, gap: float = 2.0) -> Any:
    heartbeat = await world.serve(SELDOM)
    for number in range(beats):
        wake(heartbeat, world, f"command {number}")
        await trio.sleep(gap)
    assert len(world.started) == 5
    return heartbeat


@pytest.mark.parametrize(("shift", "silent"), [(0.0, 200), (-86_400.0, 3500)])
async def test_a_pause_survives_the_supervisor_and_lasts_an_hour_at_most_after_the_clock_was_set_back(
    world: World, shift: float, silent: float
) -> None:
    await flood(world)
    world.restart()
    world.wall_offset += shift
    await world.serve(SELDOM)
    await trio.sleep(silent)
    assert len(world.started) == 5
    await trio.sleep(110)
    assert world.lines[-1] == ["command 5"]


async def test_operators_are_not_held_and_held_callers_are_answered_at_once(world: World) -> None:
    heartbeat = await flood(world)
    began = trio.current_time()
    held = await heartbeat.run_now("main", WakeReason.HOOK)
    assert (held.outcome, held.skipped) == (BeatOutcome.SKIPPED, SkipReason.FLOOD_GUARD)
    assert trio.current_time() == began
    report = await heartbeat.run_now("main")
    assert (report.outcome, report.text) == (BeatOutcome.ALERT, "command 5")
    assert trio.current_time() - began < 5
    await trio.sleep(300)
    assert world.started[-1].text == HEARTBEAT_PROMPT  # the hook's, after the pause


async def test_a_caller_whose_beat_causes_the_pause_is_answered(world: World) -> None:
    heartbeat = await flood(world, beats=5)
    with trio.fail_after(5):
        assert (await heartbeat.run_now("main", WakeReason.HOOK)).skipped is SkipReason.FLOOD_GUARD


async def test_a_flood_at_the_moment_of_the_interval_costs_the_agent_no_beat(world: World) -> None:
    world.run_time = 0.1
    world.answer = answers(OK)
    heartbeat = await world.serve()
    due = status_of(heartbeat).next_due
    assert due is not None
    await trio.sleep(due - world.wall() - 3)
    for number in range(5):
        wake(heartbeat, world, f"command {number}")
        await trio.sleep(0.55)
    await trio.sleep(due - world.wall() - 0.1)
    wake(heartbeat, world, "command 5")  # comes up together with the interval, and is one too many
    await trio.sleep(40)
    assert world.states[5:] == ["silent"]
    last = status_of(heartbeat).last_beat
    assert last is not None
    assert (last.reason, last.events) == (WakeReason.INTERVAL, 1)
