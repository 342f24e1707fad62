"""Heartbeats by the clock, in virtual time: intervals, hours, status, settings, restarts."""

import math

import pytest
import trio
from trio.testing import MockClock

from heartbeat.gates import SkipReason
from heartbeat.ports import BeatAnswer
from heartbeat.records import BeatOutcome, BeatReport
from heartbeat.settings import ActiveHours, HeartbeatSettings
from heartbeat.wake import WakeReason
from tests.heartbeat.house_around import MAIN, OK, ON, Serve, World, but, fails, status_of
from wire.units import Seconds

# --- by the clock -----------------------------------------------------------------------------------------------------


async def test_an_agent_beats_once_an_interval_give_or_take_a_tenth(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    await trio.sleep(3600)
    assert 10 <= len(world.started) <= 14
    gaps = [later - earlier for earlier, later in zip(world.started_at, world.started_at[1:], strict=False)]
    assert all(gap == pytest.approx(gaps[0]) for gap in gaps)
    assert 270 <= gaps[0] <= 330
    assert heartbeat.wakes_on_events("main")
    assert not heartbeat.wakes_on_events("nobody")
    assert {(request.room_only, request.priority, request.touch) for request in world.started} == {(True, 3, False)}


async def test_without_an_interval_an_agent_beats_for_events_and_for_operators_only(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(HeartbeatSettings())
    assert status_of(heartbeat).next_due is None
    assert heartbeat.wakes_on_events("main")
    await trio.sleep(3600)
    assert world.started == []
    world.inject("make has finished")
    assert heartbeat.wake("main", WakeReason.EXEC) is True
    await trio.sleep(2)
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.SILENT
    assert len(world.started) == 2
    assert (world.alerts, world.touched) == ([], []), "a beat that finds nothing leaves no trace"


async def test_an_agent_that_no_event_wakes_beats_for_operators_only(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(HeartbeatSettings(wake=False))
    assert not heartbeat.wakes_on_events("main")
    assert heartbeat.wake("main", WakeReason.EXEC) is False
    assert (await heartbeat.run_now("main", WakeReason.HOOK)).skipped is SkipReason.DISABLED
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.SILENT


async def test_what_an_agent_finds_is_handed_over_and_counts_as_activity(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = lambda _: BeatAnswer(ok=True, text=f"{OK} The disk is full.", media=("/tmp/df.png",))
    heartbeat = await serve(but(target="webhook:ops"))
    report = await heartbeat.run_now("main")
    (alert,) = world.alerts
    assert (alert.id, alert.text, alert.media) == (report.alert, "The disk is full.", ("/tmp/df.png",))
    assert (alert.agent, alert.session, alert.reason, alert.target) == ("main", MAIN, "manual", "webhook:ops")
    assert world.touched == [MAIN]


async def test_the_same_alert_is_told_once_in_a_day_also_by_the_next_supervisor(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = lambda _: BeatAnswer(ok=True, text="The certificate of example.com runs out. " * 10)
    heartbeat = await serve()
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.ALERT
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.REPEATED
    world.restart()
    heartbeat = await serve()
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.REPEATED
    await trio.sleep(86_400 + 400)
    assert len(world.alerts) == 2


# --- status and settings ----------------------------------------------------------------------------------------------


async def test_the_status_says_for_each_agent_what_came_of_its_last_beat_and_when_the_next_is_due(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(ON, quiet=HeartbeatSettings(active_hours=ActiveHours(start="25:00", end="09:00")))
    await trio.sleep(400)
    main, quiet = heartbeat.status()
    assert main.last_beat is not None
    assert (main.last_beat.outcome, main.last_beat.reason) == (BeatOutcome.SILENT, WakeReason.INTERVAL)
    assert main.last_beat.took == pytest.approx(1.0)
    assert main.next_due is not None
    assert 0 < main.next_due - world.wall() < main.every
    assert (quiet.every, quiet.last_beat, quiet.last_skip, quiet.next_due) == (0.0, None, None, None)
    assert "25:00" in quiet.warning


async def test_the_next_beat_is_told_and_not_the_next_look_at_the_clock(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.wall_offset = 1_700_006_400.0  # midnight, UTC
    heartbeat = await serve(but(active_hours=ActiveHours(start="08:00", end="09:00", tz="UTC")))
    due = status_of(heartbeat).next_due
    assert due is not None
    assert 8 * 3600 <= due - world.wall_offset < 8 * 3600 + 60


async def test_when_an_event_wakes_an_agent_is_known_beforehand(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.wall_offset = 1_700_006_400.0  # midnight, UTC
    heartbeat = await serve(but(active_hours=ActiveHours(start="08:00", end="09:00", tz="UTC")))
    assert heartbeat.wakes_at("main", MAIN) == world.wall_offset + 8 * 3600
    assert heartbeat.wakes_at("nobody", MAIN) is None
    heartbeat = await serve(but(active_hours=ActiveHours(start="08:00", end="08:00")))
    assert heartbeat.wakes_at("main", MAIN) == math.inf
    heartbeat = await serve()
    assert heartbeat.wakes_at("main", MAIN) is None


async def test_the_status_shows_which_session_is_beating(
    autojump_clock: MockClock, world: World, serve: Serve, nursery: trio.Nursery
) -> None:
    heartbeat = await serve()
    nursery.start_soon(heartbeat.run_now, "main", WakeReason.MANUAL, "alice")
    await trio.sleep(0.5)
    assert status_of(heartbeat).running == ("alice",)
    assert heartbeat.stats() == (1, 1)
    await trio.sleep(2)
    assert status_of(heartbeat).running == ()
    assert heartbeat.stats() == (1, 0)


async def test_other_settings_hold_at_once_and_those_that_are_the_same_keep_their_time(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(ON, other=ON)
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


async def test_what_is_kept_of_an_agent_goes_with_it(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    world.answer = lambda _: BeatAnswer(ok=True, text="The disk is full. " * 20)
    heartbeat = await serve()
    await heartbeat.run_now("main")
    world.answer = fails()
    world.inject("one")
    await heartbeat.run_now("main")
    assert all(world.disk.documents[kind] for kind in ("beat", "beat_told", "beat_begun"))
    heartbeat.reconfigure({})
    assert not any(world.disk.documents.values())


async def test_a_restart_does_not_begin_the_interval_anew(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    await serve(but(every=Seconds(3600)))
    await trio.sleep(3970)
    assert len(world.started) == 1
    world.restart()
    heartbeat = await world.open({"main": but(every=Seconds(3600))})
    due = status_of(heartbeat).next_due
    assert due is not None
    assert due - (world.wall_offset + world.started_at[0]) == pytest.approx(status_of(heartbeat).every, abs=1)


async def test_a_record_that_cannot_be_read_is_passed_over(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.disk.documents = {"beat": {"main": b"{"}, "beat_told": {"main": b"[1]"}, "beat_begun": {"main x": b"null"}}
    heartbeat = await serve()
    assert status_of(heartbeat).last_beat is None
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.SILENT


async def test_whoever_waits_for_a_beat_of_a_busy_session_is_told_of_the_beat_and_not_of_the_wait(
    autojump_clock: MockClock, world: World, serve: Serve, nursery: trio.Nursery
) -> None:
    heartbeat = await serve()
    world.busy.add(MAIN)
    reports: list[BeatReport] = []

    async def ask() -> None:
        reports.append(await heartbeat.run_now("main"))

    nursery.start_soon(ask)
    await trio.sleep(10)
    assert reports == []
    world.busy.clear()
    await trio.sleep(5)
    assert [report.outcome for report in reports] == [BeatOutcome.SILENT]


async def test_who_waits_for_a_beat_of_a_session_that_stays_busy_is_answered_and_the_beat_comes_later(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(but(every=Seconds(86_400), timeout=Seconds(60)))
    world.busy.add(MAIN)
    with trio.fail_after(62):
        report = await heartbeat.run_now("main")
    assert (report.outcome, report.skipped) == (BeatOutcome.SKIPPED, SkipReason.BUSY)
    assert world.started == []
    world.busy.clear()
    await trio.sleep(5)
    assert len(world.started) == 1


async def test_whoever_asks_during_a_beat_is_told_of_the_next_one(
    autojump_clock: MockClock, world: World, serve: Serve, nursery: trio.Nursery
) -> None:
    heartbeat = await serve()
    world.run_time = 10.0
    heartbeat.wake("main", WakeReason.HOOK)
    await trio.sleep(5)
    report = await heartbeat.run_now("main")
    assert report.reason is WakeReason.MANUAL
    assert len(world.started) == 2


async def test_whoever_gives_up_waiting_leaves_nothing_behind(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    world.busy.add(MAIN)
    with trio.move_on_after(5):
        await heartbeat.run_now("main")
    assert heartbeat._waiters == {}
