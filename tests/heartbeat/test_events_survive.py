"""No event is lost and none reported twice: killed before every durable step, and through any history."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import partial

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from heartbeat.ports import BeatAnswer, BeatRequest
from heartbeat.records import IN_PROGRESS_KIND, BeatInProgress, BeatStore
from heartbeat.service import Heartbeat
from heartbeat.wake import BeatTarget, WakeReason
from tests.heartbeat.worlds import EPOCH, MAIN, ON, Killed, World, fails, report_all, wake

REASONS = {"exec": WakeReason.EXEC, "cron": WakeReason.CRON, "other": WakeReason.WAKE}
Script = list[tuple[str, float]]


class Story:
    """A world, its supervisors one after the other, and what the user's own turns have reported."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.world = World(kill_at=kill_at)
        self.injected: list[str] = []
        self.in_turns: list[str] = []

    async def live(self, script: Script) -> Script:
        """One supervisor, until it is killed or the script says ``end``; return what is left of the script."""
        left = list(script)
        try:
            async with trio.open_nursery() as nursery:
                heartbeat = await self.world.open()
                await nursery.start(heartbeat.run)
                while left and left[0][0] != "end":
                    await self.perform(heartbeat, *left.pop(0))
                nursery.cancel_scope.cancel()
        except* Killed:  # an alert and the acknowledgement of its events are one step
            waiting = {event.text for event in self.world.disk.events.get(MAIN, [])}
            assert waiting.isdisjoint(events_in(self.world.alerts))
        self.world.restart()
        return left[1:] if left and left[0][0] == "end" else left

    async def perform(self, heartbeat: Heartbeat, name: str, number: float) -> None:
        world = self.world
        match name:
            case "exec" | "cron" | "other":
                self.injected.append(f"event {len(self.injected) + 1}.")
                wake(heartbeat, world, self.injected[-1], REASONS[name])
            case "fail" | "work":
                world.answer = fails() if name == "fail" else report_all
            case "busy" | "free":
                world.busy = {MAIN} if name == "busy" else set()
            case "turn":
                events = world.unclaimed(MAIN)
                world.acknowledge(MAIN, [event.id for event in events])
                self.in_turns += [event.text for event in events]
            case "kill":
                world.kill_at = world.steps + int(number)
            case _:
                await trio.sleep(number)

    def check(self) -> None:
        alerts = events_in(self.world.alerts)
        in_answers = events_in(answer.text for answer in self.world.disk.runs.values() if answer is not None)
        assert Counter(in_answers) == Counter(alerts)  # the agent itself has seen each in one successful turn
        assert Counter([*alerts, *self.in_turns]) == Counter(self.injected)
        assert self.world.unclaimed(MAIN) == []
        assert self.world.disk.documents.get("beat_begun", {}) == {}

    async def to_the_end(self, script: Script) -> None:
        while script:
            script = await self.live(script)
        self.world.answer = report_all
        await self.live([("sleep", 7200.0)])
        self.check()


def events_in(texts: Iterable[str]) -> list[str]:
    return [found for text in texts for found in re.findall(r"event \d+\.", text)]


STORY: Script = [("exec", 0), ("sleep", 0.1), ("cron", 0), ("sleep", 0.8), ("exec", 0), ("sleep", 30.0)]
STEPS = 14
"""Durable steps of the story."""


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("first", range(STEPS + 1))
async def test_a_supervisor_and_the_next_one_may_be_killed_before_any_step(first: int) -> None:
    for second in [None, *range(STEPS)] if 3 <= first < 9 else [None]:
        story = Story(kill_at=first)
        await story.live(STORY)
        assert (story.world.steps == STEPS) == (first == STEPS), "the story has as many steps"
        if second is not None:
            story.world.kill_at = story.world.steps + second
            await story.live([("sleep", 60.0)])
        await story.live([("sleep", 7200.0)])
        story.check()


@pytest.mark.usefixtures("virtual_time")
async def test_a_run_that_ended_before_the_kill_is_not_repeated() -> None:
    """Its answer is durable, and is asked for again by its run id."""
    story, counted = Story(), list[str]()

    def count_up(request: BeatRequest) -> BeatAnswer:
        counted.append(request.run_id)
        return BeatAnswer(ok=True, text=f"answer {len(counted)} " + "x" * 400)

    story.world.answer = count_up
    await story.live([("exec", 0), ("sleep", 0.5), ("kill", 1), ("sleep", 10.0)])
    assert (len(counted), story.world.alerts) == (1, [])
    await story.live([("sleep", 10.0)])
    assert len(counted) == 1
    assert [alert[:8] for alert in story.world.alerts] == ["answer 1"]
    assert story.world.unclaimed(MAIN) == []


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("name", REASONS)
async def test_a_wake_that_was_lost_with_the_supervisor_is_made_up_for(name: str) -> None:
    story = Story()
    await story.live([(name, 0), ("sleep", 0.1)])
    assert story.world.started == []
    await story.live([("sleep", 3.0)])
    story.check()
    assert [alert.reason for alert in story.world.disk.alerts.values()] == [REASONS[name]]


async def test_two_agents_that_share_a_conversation_report_an_event_once(world: World) -> None:
    heartbeat = await world.serve(ON, other=ON)
    world.inject("event 1.")
    for agent in ("main", "other"):
        heartbeat.wake(agent, WakeReason.EXEC, MAIN)
    await trio.sleep(30)
    assert world.alerts == ["event 1."]


NAMES = (*REASONS, "fail", "work", "busy", "free", "turn", "end")
HISTORY = st.lists(
    st.tuples(st.sampled_from(NAMES), st.just(0.0))
    | st.tuples(st.just("sleep"), st.sampled_from([0.1, 0.25, 0.6, 1.0, 5.0, 31.0, 400.0]))
    | st.tuples(st.just("kill"), st.integers(0, 12).map(float)),
    max_size=30,
)


@given(script=HISTORY)
@example(script=[("fail", 0.0), ("exec", 0.0), ("sleep", 31.0), ("end", 0.0), ("work", 0.0)])
@settings(max_examples=30)
def test_each_event_is_reported_once_in_any_history(script: Script) -> None:
    trio.run(partial(Story().to_the_end, script), clock=MockClock(autojump_threshold=0))


HERE = BeatTarget("main", MAIN)


@pytest.mark.parametrize(("has_failed", "days", "known"), [(False, 10, True), (True, 0.99, True), (True, 1.01, False)])
async def test_a_beat_in_progress_is_kept_and_the_number_of_a_failed_attempt_for_a_day(
    *, has_failed: bool, days: float, known: bool
) -> None:
    request = BeatRequest(session=MAIN, agent="main", run_id="beat-1-0", text="[SYSTEM] one")
    begun = BeatInProgress(
        subject="beat-1", reason=WakeReason.EXEC, request=request, at=EPOCH, events=("e1",), has_failed=has_failed
    )
    world = World()
    await BeatStore(world).save_in_progress(begun)
    store = BeatStore(world)
    await store.load(EPOCH + days * 86_400)
    assert store.in_progress(HERE) == (begun if known else None)
    assert len(store.all_in_progress()) == len(world.disk.documents[IN_PROGRESS_KIND]) == known


def test_deleting_what_was_never_begun_writes_nothing() -> None:
    world = World()
    BeatStore(world).delete_in_progress(HERE)
    assert world.steps == 0


def test_pauses_that_are_over_are_not_kept() -> None:
    store = BeatStore(World())
    for session, until, now in (("alice", 300, 0), ("bob", 500, 200), ("carol", 700, 400)):
        store.save_pause(BeatTarget("main", session), EPOCH + until, EPOCH + now)
    assert store.agent_record("main").paused == {"bob": EPOCH + 500, "carol": EPOCH + 700}
