"""What goes wrong with beats, in virtual time: runs that hang or fail, defects, floods."""

import pytest
import trio
from trio.testing import MockClock

from errors import PoolError, UsageError
from heartbeat.answers import HEARTBEAT_PROMPT
from heartbeat.gates import SkipReason
from heartbeat.ports import BeatAnswer, BeatRequest
from heartbeat.records import BeatOutcome
from heartbeat.wake import WakeReason
from tests.heartbeat.house_around import (
    EPOCH,
    MAIN,
    OK,
    ON,
    Serve,
    World,
    but,
    report_all,
    status_of,
    system_lines,
    wake,
)
from wire.units import Seconds

# --- faults -----------------------------------------------------------------------------------------------------------


async def test_a_beat_that_hangs_is_ended_and_the_agent_beats_on(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.run_time = float("inf")
    heartbeat = await serve(but(max_retries=0))
    report = await heartbeat.run_now("main")
    assert report.outcome is BeatOutcome.FAILED
    assert report.took == pytest.approx(75)
    assert "had not ended" in report.error
    world.run_time = 1.0
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.SILENT


@pytest.mark.parametrize(
    ("text", "alerts"),
    [
        ("word " * 2_000_000, ["word " * 3256 + "word\n[9983715 more characters were left out]"]),
        (OK + " \n" * 5_000_000, []),
        (" \n" * 5_000_000 + "The disk is full.", ["The disk is full."]),
    ],
    ids=["words", "nothing", "words after nothing"],
)
async def test_an_answer_of_ten_megabytes_is_told_as_far_as_anybody_reads(
    autojump_clock: MockClock, world: World, serve: Serve, text: str, alerts: list[str]
) -> None:
    world.answer = lambda _: BeatAnswer(ok=True, text=text)
    heartbeat = await serve()
    report = await heartbeat.run_now("main")
    assert [alert.text for alert in world.alerts] == alerts
    assert len(report.text) <= 200


async def test_a_gateway_that_refuses_the_run_is_a_failure_with_its_reason(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    def refuse(_request: BeatRequest) -> BeatAnswer:
        raise PoolError("no more runs today")

    world.answer = refuse
    heartbeat = await serve()
    report = await heartbeat.run_now("main")
    assert (report.outcome, report.error) == (BeatOutcome.FAILED, "no more runs today")


async def test_a_defect_in_one_beat_ends_nobody_elses(autojump_clock: MockClock, world: World, serve: Serve) -> None:
    def break_down(_request: BeatRequest) -> BeatAnswer:
        raise ZeroDivisionError

    world.answer = break_down
    heartbeat = await serve(but(max_retries=0), other=ON)
    report = await heartbeat.run_now("main")
    assert (report.outcome, "defect" in report.error) == (BeatOutcome.FAILED, True)
    world.answer = report_all
    assert (await heartbeat.run_now("other")).outcome is BeatOutcome.SILENT
    assert (await heartbeat.run_now("main")).outcome is BeatOutcome.SILENT


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
    paused = status_of(heartbeat).paused
    assert paused == {MAIN: pytest.approx(EPOCH + 306, abs=3)}
    await trio.sleep(3540)
    assert len(world.started) <= 60
    lines = [line for request in world.started for line in system_lines(request)]
    assert lines == [f"echo has finished, {number}" for number in range(len(lines))]  # held back, and none lost


@pytest.mark.parametrize(("shift", "silent"), [(0.0, 200), (-86_400.0, 3500)])
async def test_a_pause_outlives_the_supervisor_and_lasts_an_hour_at_most_where_the_clock_was_set_back(
    autojump_clock: MockClock, world: World, serve: Serve, shift: float, silent: float
) -> None:
    heartbeat = await serve(but(every=Seconds(86_400)))
    for number in range(6):
        wake(heartbeat, world, f"command {number}")
        await trio.sleep(2)
    assert len(world.started) == 5
    world.restart()
    world.wall_offset += shift
    await serve(but(every=Seconds(86_400)))
    await trio.sleep(silent)
    assert len(world.started) == 5
    await trio.sleep(110)
    assert system_lines(world.started[-1]) == ["command 5"]


async def test_what_a_person_asks_for_is_not_held_and_what_is_held_is_answered_at_once(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.answer = report_all
    heartbeat = await serve(but(every=Seconds(86_400)))
    for number in range(6):
        wake(heartbeat, world, f"command {number}")
        await trio.sleep(2)
    began = trio.current_time()
    held = await heartbeat.run_now("main", WakeReason.HOOK)
    assert (held.outcome, held.skipped) == (BeatOutcome.SKIPPED, SkipReason.FLOOD_GUARD)
    assert trio.current_time() == began
    report = await heartbeat.run_now("main")
    assert (report.outcome, report.text) == (BeatOutcome.ALERT, "command 5")
    assert trio.current_time() - began < 5
    await trio.sleep(300)
    assert world.started[-1].text == HEARTBEAT_PROMPT  # the hook's, after the pause


async def test_who_waits_for_a_beat_that_becomes_one_too_many_is_answered(
    autojump_clock: MockClock, world: World, serve: Serve, nursery: trio.Nursery
) -> None:
    heartbeat = await serve(but(every=Seconds(86_400)))
    for number in range(5):
        wake(heartbeat, world, f"command {number}")
        await trio.sleep(2)
    with trio.fail_after(5):
        assert (await heartbeat.run_now("main", WakeReason.HOOK)).skipped is SkipReason.FLOOD_GUARD


async def test_the_clock_and_a_flood_at_the_same_moment_do_not_cost_the_agent_its_beat(
    autojump_clock: MockClock, world: World, serve: Serve
) -> None:
    world.run_time = 0.1
    heartbeat = await serve()
    due = status_of(heartbeat).next_due
    assert due is not None
    await trio.sleep(due - world.wall() - 3)
    for number in range(5):
        wake(heartbeat, world, f"command {number}")
        await trio.sleep(0.55)
    await trio.sleep(due - world.wall() - 0.1)
    wake(heartbeat, world, "command 5")  # comes up together with the interval, and is one too many
    await trio.sleep(40)
    assert [data["state"] for type_, _, data in world.told if type_ == "heartbeat"][5:] == ["silent"]
    last = status_of(heartbeat).last_beat
    assert last is not None
    assert (last.reason, last.events) == (WakeReason.INTERVAL, 1)
