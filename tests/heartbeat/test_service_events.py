"""Gates and events at work, in virtual time: who is skipped, who is told what."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from heartbeat.gates import SkipReason
from heartbeat.ports import BeatAnswer
from heartbeat.records import BeatOutcome
from heartbeat.settings import ActiveHours
from heartbeat.wake import WakeReason, reason_of
from tests.heartbeat.house_around import MAIN, Serve, World, but, fails, report_all, status_of, system_lines, wake
from wire.units import Seconds

# --- gates ------------------------------------------------------------------------------------------------------------


async def test_a_beat_gives_way_to_a_turn_and_comes_a_second_after_it_at_the_latest(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    await serve()
    world.busy.add(MAIN)
    await trio.sleep(400)
    assert world.started == []
    assert world.states == ["skipped"]  # told once, however often it is tried
    world.busy.clear()
    await trio.sleep(1.3)
    assert len(world.started) == 1


async def test_whoever_is_busy_may_also_be_queued_for(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    heartbeat = await serve(but(skip_when_busy=False))
    world.busy.add(MAIN)
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.SILENT


async def test_an_interval_beat_without_a_worker_is_skipped_and_one_that_somebody_waits_for_waits(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.has_room_for_it = False
    heartbeat = await serve()
    await trio.sleep(340)
    assert world.started == []
    skip = status_of(heartbeat).last_skip
    assert skip is not None
    assert (skip.skipped, skip.reason) == (SkipReason.NO_WORKER, WakeReason.INTERVAL)
    wake(heartbeat, world, "make has finished")
    await trio.sleep(2)
    assert [request.room_only for request in world.started] == [False]


async def test_a_worker_that_somebody_else_was_faster_to_get_is_no_failure(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = fails("saturated")
    heartbeat = await serve()
    await trio.sleep(340)
    status = status_of(heartbeat)
    assert status.last_skip is not None
    assert status.last_skip.skipped is SkipReason.NO_WORKER
    assert status.counts == {BeatOutcome.SKIPPED: 1}
    assert len(world.started) == 1


@pytest.mark.parametrize(
    ("reason", "skipped"),
    [(WakeReason.MANUAL, SkipReason.EMPTY_CHECKLIST), (WakeReason.HOOK, None), (WakeReason.WAKE, None)],
)
async def test_an_empty_list_is_nothing_to_beat_for_unless_somebody_calls(
    nursery: trio.Nursery, tmp_path: Path, reason: WakeReason, skipped: SkipReason | None
) -> None:
    world = World()
    world.run_time = 0
    world.workspace = str(tmp_path)
    (tmp_path / "HEARTBEAT.md").write_text("# Things\n\n- [ ]\n")
    heartbeat = await world.open()
    await nursery.start(heartbeat.run)
    report = await heartbeat.run_now("main", reason)
    assert report.skipped is skipped


async def test_a_list_that_cannot_be_read_is_told_and_does_not_stop_the_beat(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    world = World()
    world.run_time = 0
    world.workspace = str(tmp_path)
    (tmp_path / "HEARTBEAT.md").write_bytes(b"\xff\xfe\x00\x01")
    heartbeat = await world.open()
    await nursery.start(heartbeat.run)
    report = await heartbeat.run_now("main")
    assert report.outcome is BeatOutcome.SILENT
    assert "not a text" in report.problem


async def test_asking_for_an_interval_beat_before_its_time_says_so(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    assert (await heartbeat.run_now("main", WakeReason.INTERVAL)).skipped is SkipReason.NOT_DUE


# --- events -----------------------------------------------------------------------------------------------------------


async def test_a_finished_command_reaches_a_worker_within_300_ms(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    await trio.sleep(10)
    wake(heartbeat, world, "make has finished")
    await trio.sleep(5)
    assert world.started_at == [pytest.approx(10.25)]
    assert system_lines(world.started[0]) == ["make has finished"]
    assert world.disk.events[MAIN] == []


async def test_a_wake_for_what_was_told_meanwhile_costs_nothing(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    wake(heartbeat, world, "one")
    world.disk.events.clear()  # the user's own turn has told it
    await trio.sleep(1)
    assert world.started == []
    assert status_of(heartbeat).last_skip is not None
    assert world.states == ["skipped"]


async def test_a_failed_beat_keeps_its_events_and_is_tried_again_under_another_name(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = fails()
    heartbeat = await serve()
    wake(heartbeat, world, "one")
    await trio.sleep(3)
    world.answer = report_all
    await trio.sleep(20)
    assert [alert.text for alert in world.alerts] == ["one"]
    first, second = world.started
    assert (first.run_id[:-1], first.run_id[-1], second.run_id[-1]) == (second.run_id[:-1], "0", "1")
    assert world.started_at[1] - world.started_at[0] == pytest.approx(world.run_time + 5.0)


@pytest.mark.parametrize("session", [None, "agent:main:signal:dm:7"])
async def test_events_whose_beat_has_failed_for_good_are_told_within_minutes_wherever_they_belong(
    autojump_clock: MockClock, world: World, serve: Serve, session: str | None
) -> None:
    world.answer = fails()
    heartbeat = await serve(but(every=Seconds(86_400)))
    world.inject("one", session=session or MAIN)
    heartbeat.wake("main", WakeReason.EXEC, session)
    await trio.sleep(60)
    assert len(world.started) == 3
    world.answer = report_all
    await trio.sleep(300)
    assert [alert.text for alert in world.alerts] == ["one"]
    await trio.sleep(3600)
    assert len(world.started) == 4


async def test_events_whose_beats_keep_failing_are_tried_more_and_more_seldom(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = fails()
    heartbeat = await serve(but(every=Seconds(7 * 86_400)))
    wake(heartbeat, world, "one")
    await trio.sleep(86_400)
    rests = [later - at for at, later in zip(world.started_at, world.started_at[1:], strict=False) if later - at > 60]
    assert (
        rests[:9]
        == [pytest.approx(300 * 2**number, abs=10) for number in range(6)] + [pytest.approx(14400, abs=10)] * 3
    )


async def test_events_outside_the_hours_wait_for_them(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    world.wall_offset = 1_700_006_400.0  # midnight, UTC
    world.answer = report_all
    heartbeat = await serve(but(every=Seconds(86_400), active_hours=ActiveHours(start="06:00", end="20:00", tz="UTC")))
    wake(heartbeat, world, "one")
    await trio.sleep(7 * 3600)
    assert world.started_at == [pytest.approx(6 * 3600, abs=1)]
    assert [alert.text for alert in world.alerts] == ["one"]


async def test_what_was_to_be_without_events_outside_the_hours_is_not_made_up_for(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.wall_offset = 1_700_006_400.0  # midnight, UTC
    heartbeat = await serve(but(every=Seconds(86_400), active_hours=ActiveHours(start="06:00", end="20:00", tz="UTC")))
    assert (await heartbeat.run_now("main", WakeReason.HOOK)).skipped is SkipReason.OUTSIDE_ACTIVE_HOURS
    await trio.sleep(12 * 3600)
    assert world.started == []


async def test_events_wait_for_a_worker_at_the_next_beat_by_the_clock(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.has_room_for_it = False
    await serve()
    world.inject("one")
    await trio.sleep(340)
    assert [(system_lines(request), request.room_only) for request in world.started] == [(["one"], False)]


@pytest.mark.parametrize("kind", ["exec", "delegate"])
async def test_a_command_or_task_that_must_be_told_is_told_by_its_own_words_if_need_be(
    autojump_clock: MockClock, world: World, serve: Serve, kind: str
) -> None:
    heartbeat = await serve(but(exec_always_deliver=True))
    world.inject("make has finished: exit code 2", kind)
    heartbeat.wake("main", WakeReason.EXEC)
    await trio.sleep(5)
    assert [alert.text for alert in world.alerts] == ["make has finished: exit code 2"]


@pytest.mark.parametrize("kind", ["exec", "delegate", "cron"])
async def test_each_command_and_task_is_told_of_however_alike_the_words(
    autojump_clock: MockClock, world: World, serve: Serve, kind: str
) -> None:
    world.answer = lambda _: BeatAnswer(ok=True, text="It went well.")
    heartbeat = await serve()
    for _ in range(2):  # the same event again is another command, another task, another time
        world.inject("it has ended", kind)
        heartbeat.wake("main", reason_of(kind))
        await trio.sleep(5)
    assert [alert.text for alert in world.alerts] == ["It went well."] * 2


async def test_the_same_words_are_told_again_when_they_are_about_another_event(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = lambda _: BeatAnswer(ok=True, text="It is back.")
    heartbeat = await serve(but(every=Seconds(86_400)))
    for text in ("the build machine is back", "the mail server is back", "the build machine is back"):
        world.inject(text, "other")
        heartbeat.wake("main")
        await trio.sleep(40)
    assert [alert.text for alert in world.alerts] == ["It is back."] * 2
    assert status_of(heartbeat).counts == {BeatOutcome.ALERT: 2, BeatOutcome.REPEATED: 1}


async def test_the_agents_own_texts_are_used(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    heartbeat = await serve(but(prompt="LOOK", exec_prompt="TELL", cron_prompt="DO"))
    await heartbeat.run_now("main")
    wake(heartbeat, world, "one")
    await trio.sleep(5)
    wake(heartbeat, world, "two", WakeReason.CRON)
    await trio.sleep(5)
    assert [request.text for request in world.started] == ["LOOK", "[SYSTEM] one\n\nTELL", "[SYSTEM] two\n\nDO"]
