"""Heartbeats at work, in virtual time."""

from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import PoolError, UsageError
from heartbeat.beat_records import BeatReport, Outcome
from heartbeat.gates import SkipReason
from heartbeat.reasons import Reason
from heartbeat.run_ports import BeatAnswer, BeatRequest
from heartbeat.service import Heartbeat
from heartbeat.settings import ActiveHours, HeartbeatSettings
from tests.heartbeat.house_around import EPOCH, MAIN, OK, ON, World, fails, report_all, system_lines, wake
from wire.units import Seconds

Serve = Callable[..., Coroutine[None, None, Heartbeat]]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def serve(world: World, nursery: trio.Nursery) -> Serve:
    lives: list[trio.CancelScope] = []

    async def live(
        agents: dict[str, HeartbeatSettings], *, task_status: trio.TaskStatus[Heartbeat] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.CancelScope() as scope:
            lives.append(scope)
            heartbeat = await world.open(agents)
            task_status.started(heartbeat)
            await heartbeat.run()

    async def start(settings: HeartbeatSettings = ON, **others: HeartbeatSettings) -> Heartbeat:
        """The supervisor begins, and the one before it, if there was one, ends."""
        for scope in lives:
            scope.cancel()
        await wait_all_tasks_blocked()
        heartbeat: Heartbeat = await nursery.start(live, {"main": settings, **others})
        return heartbeat

    return start


def but(**changes: object) -> HeartbeatSettings:
    return msgspec.structs.replace(ON, **changes)


# --- by the clock -----------------------------------------------------------------------------------------------------


async def test_an_agent_beats_once_an_interval_give_or_take_a_tenth(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    await serve()
    await trio.sleep(3600)
    assert 10 <= len(world.started) <= 14
    gaps = [later - earlier for earlier, later in zip(world.started_at, world.started_at[1:], strict=False)]
    assert all(gap == pytest.approx(gaps[0]) for gap in gaps)
    assert 270 <= gaps[0] <= 330
    assert {(request.spawn, request.priority, request.touch) for request in world.started} == {(False, 3, False)}


async def test_an_agent_that_is_off_never_beats(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    heartbeat = await serve(HeartbeatSettings())
    assert heartbeat.status_of("main").next_due is None
    assert (await heartbeat.run_now("main")).skipped is SkipReason.DISABLED
    await trio.sleep(3600)
    assert world.started == []


async def test_a_heartbeat_that_finds_nothing_leaves_no_trace_in_the_conversation(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    report = await heartbeat.run_now("main")
    assert report.outcome is Outcome.SILENT
    assert (world.alerts, world.touched) == ([], [])


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
    assert (await heartbeat.run_now("main")).outcome is Outcome.ALERT
    assert (await heartbeat.run_now("main")).outcome is Outcome.REPEATED
    world.restart()
    heartbeat = await serve()
    assert (await heartbeat.run_now("main")).outcome is Outcome.REPEATED
    await trio.sleep(86_400 + 400)
    assert len(world.alerts) == 2


async def test_outside_its_hours_an_agent_sleeps_until_they_begin(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    hours = ActiveHours(start="08:00", end="09:00", tz="UTC")
    world.wall_offset = 1_700_006_400.0  # midnight, UTC
    await serve(but(active_hours=hours))
    await trio.sleep(86_400)
    assert 10 <= len(world.started) <= 14
    assert all(8 * 3600 <= at % 86_400 < 9 * 3600 + 2 for at in world.started_at)
    assert min(world.started_at) < 8 * 3600 + 60
    assert world.busy_asked < 60  # one look an hour while the window is shut


async def test_hours_that_make_no_sense_are_told_and_shut_nobody_out(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(but(active_hours=ActiveHours(start="25:00", end="09:00")))
    assert "25:00" in heartbeat.status_of("main").warning
    assert (await heartbeat.run_now("main")).outcome is Outcome.SILENT


async def test_hours_that_never_begin_mean_never(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    heartbeat = await serve(but(active_hours=ActiveHours(start="09:00", end="09:00")))
    assert heartbeat.status_of("main").next_due is None
    await trio.sleep(86_400)
    assert world.started == []


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
    assert len(world.started) == 1


async def test_whoever_is_busy_may_also_be_queued_for(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    heartbeat = await serve(but(skip_when_busy=False))
    world.busy.add(MAIN)
    assert (await heartbeat.run_now("main")).outcome is Outcome.SILENT


async def test_an_interval_beat_without_a_worker_is_skipped_and_one_that_somebody_waits_for_waits(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.has_workers = False
    heartbeat = await serve()
    await trio.sleep(340)
    assert world.started == []
    skip = heartbeat.status_of("main").last_skip
    assert skip is not None
    assert (skip.skipped, skip.reason) == (SkipReason.NO_WORKER, Reason.INTERVAL)
    wake(heartbeat, world, "make has finished")
    await trio.sleep(2)
    assert [request.spawn for request in world.started] == [True]


async def test_a_worker_that_somebody_else_was_faster_to_get_is_no_failure(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = fails("saturated")
    heartbeat = await serve()
    await trio.sleep(340)
    status = heartbeat.status_of("main")
    assert status.last_skip is not None
    assert status.last_skip.skipped is SkipReason.NO_WORKER
    assert status.counts == {Outcome.SKIPPED: 1}
    assert len(world.started) == 1


@pytest.mark.parametrize(
    ("reason", "skipped"),
    [(Reason.MANUAL, SkipReason.EMPTY_CHECKLIST), (Reason.HOOK, None), (Reason.WAKE, None)],
)
async def test_an_empty_list_is_nothing_to_beat_for_unless_somebody_calls(
    nursery: trio.Nursery, tmp_path: Path, reason: Reason, skipped: SkipReason | None
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
    assert report.outcome is Outcome.SILENT
    assert "not a text" in report.problem


async def test_asking_for_an_interval_beat_before_its_time_says_so(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    assert (await heartbeat.run_now("main", Reason.INTERVAL)).skipped is SkipReason.NOT_DUE


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


async def test_nobody_is_woken_for_a_command_who_does_not_want_to_be(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(but(notify_on_exit=False))
    world.inject("make has finished")
    assert heartbeat.wake("main", Reason.EXEC) is False
    assert heartbeat.wake("nobody", Reason.EXEC) is False
    await trio.sleep(5)
    assert world.started == []
    assert len(world.peek(MAIN)) == 1
    assert heartbeat.wake("main", Reason.CRON) is True


async def test_what_comes_while_a_beat_runs_is_the_next_ones(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer, world.run_time = report_all, 10.0
    heartbeat = await serve()
    wake(heartbeat, world, "one")
    await trio.sleep(3)
    wake(heartbeat, world, "two")
    await trio.sleep(30)
    assert [system_lines(request) for request in world.started] == [["one"], ["two"]]
    assert [alert.text for alert in world.alerts] == ["one", "two"]


async def test_a_wake_for_what_was_told_meanwhile_costs_nothing(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    wake(heartbeat, world, "one")
    world.disk.events.clear()  # the user's own turn has told it
    await trio.sleep(1)
    assert world.started == []
    assert heartbeat.status_of("main").last_skip is not None
    assert world.states == ["skipped"]


async def test_events_are_nobody_elses_while_a_beat_tells_them_and_again_when_it_has_failed(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer, world.run_time = fails(), 10.0
    heartbeat = await serve(but(max_retries=0))
    wake(heartbeat, world, "one")
    await trio.sleep(5)
    assert world.peek(MAIN) == []
    await trio.sleep(10)
    assert [event.text for event in world.peek(MAIN)] == ["one"]


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


async def test_after_its_retries_a_beat_waits_for_the_next_one_with_its_events(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = fails()
    heartbeat = await serve()
    wake(heartbeat, world, "one")
    await trio.sleep(60)
    assert len(world.started) == 3
    assert heartbeat.status_of("main").counts == {Outcome.FAILED: 3}
    world.answer = report_all
    await trio.sleep(300)
    assert [alert.text for alert in world.alerts] == ["one"]
    assert world.started[-1].spawn is True  # by the clock, but somebody is to be told


async def test_events_outside_the_hours_wait_for_them(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    world.wall_offset = 1_700_006_400.0  # midnight, UTC
    world.answer = report_all
    heartbeat = await serve(but(every=Seconds(86_400), active_hours=ActiveHours(start="06:00", end="20:00", tz="UTC")))
    wake(heartbeat, world, "one")
    await trio.sleep(7 * 3600)
    assert world.started_at == [pytest.approx(6 * 3600, abs=1)]
    assert [alert.text for alert in world.alerts] == ["one"]


async def test_a_command_that_must_be_told_is_told_by_its_own_words_if_need_be(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(but(exec_always_deliver=True))
    wake(heartbeat, world, "make has finished: exit code 2")
    await trio.sleep(5)
    assert [alert.text for alert in world.alerts] == ["make has finished: exit code 2"]


async def test_the_agents_own_texts_are_used(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    heartbeat = await serve(but(prompt="LOOK", exec_prompt="TELL", cron_prompt="DO"))
    await heartbeat.run_now("main")
    wake(heartbeat, world, "one")
    await trio.sleep(5)
    wake(heartbeat, world, "two", Reason.CRON)
    await trio.sleep(5)
    assert [request.text for request in world.started] == ["LOOK", "[SYSTEM] one\n\nTELL", "[SYSTEM] two\n\nDO"]


# --- faults -----------------------------------------------------------------------------------------------------------


async def test_a_beat_that_hangs_is_ended_and_the_agent_beats_on(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.run_time = float("inf")
    heartbeat = await serve(but(max_retries=0))
    report = await heartbeat.run_now("main")
    assert report.outcome is Outcome.FAILED
    assert report.took == pytest.approx(75)
    assert "had not ended" in report.error
    world.run_time = 1.0
    assert (await heartbeat.run_now("main")).outcome is Outcome.SILENT


async def test_an_answer_of_ten_megabytes_is_told_as_far_as_anybody_reads(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = lambda _: BeatAnswer(ok=True, text="word " * 2_000_000)
    heartbeat = await serve()
    report = await heartbeat.run_now("main")
    (alert,) = world.alerts
    assert len(alert.text) < 20_000
    assert "more characters were left out" in alert.text
    assert len(report.text) <= 200


async def test_an_answer_of_ten_megabytes_of_nothing_is_nothing(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = lambda _: BeatAnswer(ok=True, text=OK + " \n" * 5_000_000)
    heartbeat = await serve()
    assert (await heartbeat.run_now("main")).outcome is Outcome.SILENT


async def test_a_gateway_that_refuses_the_run_is_a_failure_with_its_reason(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    def refuse(_request: BeatRequest) -> BeatAnswer:
        raise PoolError("no more runs today")

    world.answer = refuse
    heartbeat = await serve()
    report = await heartbeat.run_now("main")
    assert (report.outcome, report.error) == (Outcome.FAILED, "no more runs today")


async def test_a_defect_in_one_beat_ends_nobody_elses(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    def break_down(_request: BeatRequest) -> BeatAnswer:
        raise ZeroDivisionError

    world.answer = break_down
    heartbeat = await serve(but(max_retries=0), other=ON)
    report = await heartbeat.run_now("main")
    assert (report.outcome, "defect" in report.error) == (Outcome.FAILED, True)
    world.answer = report_all
    assert (await heartbeat.run_now("other")).outcome is Outcome.SILENT
    assert (await heartbeat.run_now("main")).outcome is Outcome.SILENT


async def test_an_alert_whose_target_makes_no_sense_is_told_to_whoever_watches(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = lambda _: BeatAnswer(ok=True, text="The disk is full. " * 20)
    world.bad_targets.add("Nobody")
    heartbeat = await serve(but(target="Nobody"))
    report = await heartbeat.run_now("main")
    assert [alert.target for alert in world.alerts] == ["events"]
    assert report.problem == "Nobody is no target"


async def test_nobody_can_make_an_agent_beat_that_is_not_configured(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    with pytest.raises(UsageError, match="there are: main"):
        await heartbeat.run_now("nobody")
    with pytest.raises(UsageError, match="nobody"):
        heartbeat.status_of("nobody")


# --- the flood guard --------------------------------------------------------------------------------------------------


async def test_a_beat_whose_tool_wakes_it_again_is_held_back_and_somebody_is_told(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(but(every=Seconds(86_400)))

    def loop(request: BeatRequest) -> BeatAnswer:
        wake(heartbeat, world, f"echo has finished, {len(world.started)}")
        return report_all(request)

    world.answer = loop
    wake(heartbeat, world, "echo has finished, 0")
    await trio.sleep(60)
    assert len(world.started) == 5
    errors = [data["message"] for type_, _, data in world.told if type_ == "error"]
    assert len(errors) == 1
    assert "again in 300 s" in errors[0]
    paused = heartbeat.status_of("main").paused
    assert paused == {MAIN: pytest.approx(EPOCH + 306, abs=3)}
    await trio.sleep(3540)
    assert len(world.started) <= 60
    lines = [line for request in world.started for line in system_lines(request)]
    assert lines == [f"echo has finished, {number}" for number in range(len(lines))]  # held back, and none lost


async def test_a_pause_outlives_the_supervisor(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    heartbeat = await serve(but(every=Seconds(86_400)))
    for number in range(6):
        wake(heartbeat, world, f"command {number}")
        await trio.sleep(2)
    assert len(world.started) == 5
    world.restart()
    await serve(but(every=Seconds(86_400)))
    await trio.sleep(200)
    assert len(world.started) == 5
    await trio.sleep(110)
    assert system_lines(world.started[-1]) == ["command 5"]


async def test_the_interval_goes_on_while_events_are_held_back(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(but(every=Seconds(60)))
    for number in range(6):
        wake(heartbeat, world, f"command {number}")
        await trio.sleep(2)
    await trio.sleep(100)
    assert system_lines(world.started[5]) == ["command 5"]
    assert len(world.started) >= 6


async def test_a_storm_of_wakes_is_one_beat(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    heartbeat = await serve()
    for _ in range(10_000):
        heartbeat.wake("main", Reason.HOOK)
    await trio.sleep(5)
    assert len(world.started) == 1


# --- status and settings ----------------------------------------------------------------------------------------------


async def test_the_status_says_for_each_agent_what_came_of_its_last_beat_and_when_the_next_is_due(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(ON, quiet=HeartbeatSettings())
    await trio.sleep(400)
    main, quiet = heartbeat.status()
    assert main.last_beat is not None
    assert (main.last_beat.outcome, main.last_beat.reason) == (Outcome.SILENT, Reason.INTERVAL)
    assert main.last_beat.took == pytest.approx(1.0)
    assert main.next_due is not None
    assert 0 < main.next_due - world.wall() < main.every
    assert (quiet.enabled, quiet.last_beat, quiet.last_skip, quiet.next_due) == (False, None, None, None)


async def test_the_status_shows_which_session_is_beating(
    autojump_clock: MockClock, world: World, serve: Serve, nursery: trio.Nursery
) -> None:
    heartbeat = await serve()
    nursery.start_soon(heartbeat.run_now, "main", Reason.MANUAL, "alice")
    await trio.sleep(0.5)
    assert heartbeat.status_of("main").running == ("alice",)
    await trio.sleep(2)
    assert heartbeat.status_of("main").running == ()


async def test_other_settings_hold_at_once_and_those_that_are_the_same_keep_their_time(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(ON, other=ON)
    await trio.sleep(100)
    before = heartbeat.status_of("main").next_due
    heartbeat.reconfigure({"main": ON, "other": but(every=Seconds(60)), "new": ON})
    assert heartbeat.status_of("main").next_due == before
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
    assert all(world.disk.documents[kind] for kind in ("beat", "beat_told"))
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
    due = heartbeat.status_of("main").next_due
    assert due is not None
    assert due - (world.wall_offset + world.started_at[0]) == pytest.approx(heartbeat.status_of("main").every, abs=1)


async def test_whoever_should_have_beaten_long_ago_does_so_within_a_minute(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve(but(every=Seconds(3600)))
    await heartbeat.run_now("main")
    world.restart()
    world.wall_offset += 86_400
    heartbeat = await world.open({"main": but(every=Seconds(3600))})
    due = heartbeat.status_of("main").next_due
    assert due is not None
    assert 0 <= due - world.wall() <= 60


async def test_a_record_that_cannot_be_read_is_passed_over(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.disk.documents = {"beat": {"main": b"{"}, "beat_told": {"main": b"[1]"}, "beat_begun": {"main x": b"null"}}
    heartbeat = await serve()
    assert heartbeat.status_of("main").last_beat is None
    assert (await heartbeat.run_now("main")).outcome is Outcome.SILENT


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
    assert [report.outcome for report in reports] == [Outcome.SILENT]


async def test_whoever_asks_during_a_beat_is_told_of_the_next_one(
    autojump_clock: MockClock, world: World, serve: Serve, nursery: trio.Nursery
) -> None:
    heartbeat = await serve()
    world.run_time = 10.0
    heartbeat.wake("main", Reason.HOOK)
    await trio.sleep(5)
    report = await heartbeat.run_now("main")
    assert report.reason is Reason.MANUAL
    assert len(world.started) == 2


async def test_whoever_gives_up_waiting_leaves_nothing_behind(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    heartbeat = await serve()
    world.busy.add(MAIN)
    with trio.move_on_after(5):
        await heartbeat.run_now("main")
    assert heartbeat._waiters == {}
