"""Gates and events at work, in virtual time: which beats are skipped, which events a beat reports and when."""

from typing import Any

import pytest
import trio

from heartbeat.gates import SkipReason
from heartbeat.records import BeatOutcome
from heartbeat.settings import ActiveHours, HeartbeatSettings
from heartbeat.wake import WakeReason, reason_of
from tests.heartbeat.worlds import (
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

DAYTIME = but(SELDOM, active_hours=ActiveHours(start="06:00", end="20:00", tz="UTC"))


async def test_a_beat_gives_way_to_a_turn_and_comes_a_second_after_it_at_the_latest(world: World) -> None:
    await world.serve()
    world.busy.add(MAIN)
    await trio.sleep(400)
    assert world.started == []
    assert world.states == ["skipped"]  # published once, however often it is tried
    world.busy.clear()
    await trio.sleep(1.3)
    assert len(world.started) == 1


async def test_a_beat_may_also_wait_behind_the_turn(world: World) -> None:
    heartbeat = await world.serve(but(skip_when_busy=False))
    world.busy.add(MAIN)
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.SILENT


@pytest.mark.parametrize("known", [True, False], ids=["before", "after another took it"])
async def test_an_interval_beat_without_a_worker_is_skipped_and_one_for_events_waits(
    world: World, *, known: bool
) -> None:
    world.has_a_worker, world.answer = not known, fails("saturated")
    heartbeat = await world.serve()
    await trio.sleep(340)
    assert len(world.started) == (not known)
    status = status_of(heartbeat)
    assert status.last_skip is not None
    assert (status.last_skip.skipped, status.last_skip.reason) == (SkipReason.NO_WORKER, WakeReason.INTERVAL)
    assert status.counts == {BeatOutcome.SKIPPED: 1}
    wake(heartbeat, world, "make has finished")
    await trio.sleep(2)
    assert world.started[-1].room_only is False


@pytest.mark.parametrize(
    ("body", "reason", "expected"),
    [
        (b"# Things\n\n- [ ]\n", WakeReason.MANUAL, (SkipReason.EMPTY_CHECKLIST, "")),
        (b"# Things\n\n- [ ]\n", WakeReason.HOOK, (None, "")),
        (b"# Things\n\n- [ ]\n", WakeReason.WAKE, (None, "")),
        (b"\xff\xfe\x00\x01", WakeReason.MANUAL, (None, "HEARTBEAT.md is not a text in UTF-8")),
    ],
)
async def test_an_empty_checklist_skips_beats_that_no_caller_asked_for_and_an_unreadable_one_does_not(
    world: World, body: bytes, reason: WakeReason, expected: tuple[Any, str]
) -> None:
    world.files["HEARTBEAT.md"] = body
    heartbeat = await world.serve()
    report = await heartbeat.run_now("main", reason)
    assert (report.skipped, report.problem) == expected


async def test_an_interval_beat_requested_before_its_time_is_skipped(world: World) -> None:
    heartbeat = await world.serve()
    assert (await heartbeat.run_now("main", WakeReason.INTERVAL)).skipped is SkipReason.NOT_DUE


@pytest.mark.parametrize(
    ("settings", "wakes", "sleep", "at"),
    [
        (ON, True, 5, 0.25),
        (ON, False, 340, 271.25),  # at the next beat by the clock, whose events wait for a worker
        (DAYTIME, True, 7 * 3600, 6 * 3600),
    ],
    ids=["at once", "without a wake", "outside the active hours"],
)
async def test_an_event_reaches_a_worker_as_soon_as_it_may(
    world: World, settings: HeartbeatSettings, *, wakes: bool, sleep: float, at: float
) -> None:
    world.wall_offset, world.has_a_worker = MIDNIGHT, wakes
    heartbeat = await world.serve(settings)
    world.inject("make has finished")
    if wakes:
        heartbeat.wake("main", WakeReason.EXEC)
    await trio.sleep(sleep)
    assert world.started_at == [pytest.approx(at, abs=0.02)]
    assert (world.lines, world.started[0].room_only) == ([["make has finished"]], False)
    assert (world.alerts, world.disk.events[MAIN]) == (["make has finished"], [])


async def test_a_beat_without_events_outside_the_active_hours_is_not_made_up_for(world: World) -> None:
    world.wall_offset = MIDNIGHT
    heartbeat = await world.serve(DAYTIME)
    assert (await heartbeat.run_now("main", WakeReason.HOOK)).skipped is SkipReason.OUTSIDE_ACTIVE_HOURS
    await trio.sleep(12 * 3600)
    assert world.started == []


async def test_a_wake_for_an_event_that_a_turn_has_reported_starts_no_run(world: World) -> None:
    heartbeat = await world.serve()
    wake(heartbeat, world, "one")
    world.disk.events.clear()
    await trio.sleep(1)
    assert (world.started, world.states) == ([], ["skipped"])
    last = status_of(heartbeat).last_skip
    assert last is not None
    assert last.skipped is SkipReason.NOTHING_PENDING


async def test_a_failed_beat_keeps_its_events_and_is_retried_under_another_run_id(world: World) -> None:
    world.answer = fails()
    heartbeat = await world.serve()
    wake(heartbeat, world, "one")
    await trio.sleep(3)
    world.answer = report_all
    await trio.sleep(20)
    assert world.alerts == ["one"]
    first, second = world.started
    assert (first.run_id[:-1], first.run_id[-1], second.run_id[-1]) == (second.run_id[:-1], "0", "1")
    assert world.gaps == [pytest.approx(world.run_time + 5.0)]


@pytest.mark.parametrize("session", [MAIN, "agent:main:signal:dm:7"])
async def test_events_whose_retries_have_failed_come_up_again_after_minutes(world: World, session: str) -> None:
    world.answer = fails()
    heartbeat = await world.serve(SELDOM)
    world.inject("one", session=session)
    heartbeat.wake("main", WakeReason.EXEC, session)
    await trio.sleep(60)
    assert len(world.started) == 3
    world.answer = report_all
    await trio.sleep(300)
    assert world.alerts == ["one"]
    await trio.sleep(3600)
    assert len(world.started) == 4


async def test_events_whose_beats_keep_failing_are_tried_more_and_more_seldom(world: World) -> None:
    world.answer = fails()
    heartbeat = await world.serve(but(every=Seconds(7 * 86_400)))
    wake(heartbeat, world, "one")
    await trio.sleep(86_400)
    rests = [gap for gap in world.gaps if gap > 60]
    assert rests[:9] == pytest.approx([300 * 2**number for number in range(6)] + [14_400] * 3, abs=10)


@pytest.mark.parametrize("kind", ["exec", "delegate", "cron"])
async def test_every_command_and_task_is_reported_however_alike_the_words(world: World, kind: str) -> None:
    world.answer = answers("It went well.")
    heartbeat = await world.serve()
    for _ in range(2):
        world.inject("it has ended", kind)
        heartbeat.wake("main", reason_of(kind))
        await trio.sleep(5)
    assert world.alerts == ["It went well."] * 2


@pytest.mark.parametrize("kind", ["exec", "delegate"])
async def test_where_set_the_result_of_a_command_or_task_is_its_own_alert(world: World, kind: str) -> None:
    world.answer = answers(OK)
    heartbeat = await world.serve(but(exec_always_deliver=True))
    world.inject("make has finished: exit code 2", kind)
    heartbeat.wake("main", WakeReason.EXEC)
    await trio.sleep(5)
    assert world.alerts == ["make has finished: exit code 2"]


async def test_the_same_words_about_another_event_are_another_alert(world: World) -> None:
    world.answer = answers("It is back.")
    heartbeat = await world.serve(SELDOM)
    for text in ("the build machine is back", "the mail server is back", "the build machine is back"):
        wake(heartbeat, world, text, WakeReason.WAKE)
        await trio.sleep(40)
    assert world.alerts == ["It is back."] * 2
    assert status_of(heartbeat).counts == {BeatOutcome.ALERT: 2, BeatOutcome.REPEATED: 1}


async def test_the_prompts_of_the_settings_are_used(world: World) -> None:
    heartbeat = await world.serve(but(prompt="LOOK", exec_prompt="TELL", cron_prompt="DO"))
    await heartbeat.run_now("main")
    for text, reason in (("one", WakeReason.EXEC), ("two", WakeReason.CRON)):
        wake(heartbeat, world, text, reason)
        await trio.sleep(5)
    assert [request.text for request in world.started] == ["LOOK", "[SYSTEM] one\n\nTELL", "[SYSTEM] two\n\nDO"]
