"""No event is lost and none told twice: killed before every step that leaves a trace, and through any history."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import partial

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from heartbeat.ports import BeatAnswer, BeatRequest
from heartbeat.service import Heartbeat
from heartbeat.wake import WakeReason
from tests.heartbeat.house_around import MAIN, ON, Killed, World, fails, report_all

STEPS_OF_A_LIFE = 40
"""More than the stories below take."""


class Story:
    """A world, the supervisor that lives in it, and what the user's own turns have told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.injected: list[str] = []
        self.told_by_turns: list[str] = []
        self.lives = 0

    def happen(self, heartbeat: Heartbeat, kind: str = "exec", reason: WakeReason = WakeReason.EXEC) -> None:
        text = f"event {len(self.injected) + 1}."
        self.injected.append(text)
        self.world.inject(text, kind)
        heartbeat.wake("main", reason)

    def turn(self) -> None:
        """The user says something, and is told what waits."""
        events = self.world.unclaimed(MAIN)
        self.world.acknowledge(MAIN, [event.id for event in events])
        self.told_by_turns += [event.text for event in events]

    def check_step(self) -> None:
        """At any time: an alert that is handed over and what it tells being acknowledged are one."""
        waiting = {event.text for event in self.world.disk.events.get(MAIN, [])}
        assert waiting.isdisjoint(events_in(alert.text for alert in self.world.alerts))

    def check(self) -> None:
        alerts = events_in(alert.text for alert in self.world.alerts)
        answers = events_in(answer.text for answer in self.world.disk.runs.values() if answer is not None)
        assert Counter(answers) == Counter(alerts)  # the agent itself has heard of each in one good turn
        assert Counter([*alerts, *self.told_by_turns]) == Counter(self.injected)
        assert self.world.unclaimed(MAIN) == []
        assert self.world.disk.documents.get("beat_begun", {}) == {}


def events_in(texts: Iterable[str]) -> list[str]:
    return [found for text in texts for found in re.findall(r"event \d+\.", text)]


async def live(story: Story, script: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """One supervisor's life: until the end of the script, or of it; returns what is left of the script."""
    story.lives += 1
    left = list(script)
    try:
        async with trio.open_nursery() as nursery:
            heartbeat = await story.world.open()
            await nursery.start(heartbeat.run)
            while left:
                name, number = left.pop(0)
                if name == "end":
                    break
                await perform(story, heartbeat, name, number)
            nursery.cancel_scope.cancel()
    except* Killed:
        story.check_step()
    story.world.restart()
    return left


async def perform(story: Story, heartbeat: Heartbeat, name: str, number: float) -> None:
    world = story.world
    match name:
        case "exec":
            story.happen(heartbeat)
        case "cron":
            story.happen(heartbeat, "cron", WakeReason.CRON)
        case "other":
            story.happen(heartbeat, "other", WakeReason.WAKE)
        case "fail" | "work":
            world.answer = fails() if name == "fail" else report_all
        case "busy" | "free":
            world.busy = {MAIN} if name == "busy" else set()
        case "turn":
            story.turn()
        case "kill":
            world.kill_at = world.steps + int(number)
        case _:
            await trio.sleep(number)


async def to_the_end(story: Story, script: list[tuple[str, float]]) -> None:
    while script:
        script = await live(story, script)
    story.world.answer = report_all
    await live(story, [("sleep", 7200.0)])
    story.check()


STORY = [("exec", 0), ("sleep", 0.1), ("cron", 0), ("sleep", 0.8), ("exec", 0), ("sleep", 30.0)]


@pytest.mark.parametrize("step", range(STEPS_OF_A_LIFE))
async def test_a_supervisor_may_be_killed_before_any_step(autojump_clock: MockClock, step: int) -> None:
    story = Story(World(kill_at=step))
    story.world.answer = report_all
    await live(story, STORY)
    await live(story, [("sleep", 7200.0)])
    story.check()


async def test_the_story_has_fewer_steps_than_are_tried(autojump_clock: MockClock) -> None:
    story = Story(World())
    story.world.answer = report_all
    await live(story, STORY)
    assert 6 < story.world.steps < STEPS_OF_A_LIFE


@pytest.mark.parametrize("second", range(STEPS_OF_A_LIFE // 2))
async def test_the_next_supervisor_may_be_killed_too(autojump_clock: MockClock, second: int) -> None:
    for first in range(3, 9):
        story = Story(World(kill_at=first))
        story.world.answer = report_all
        await live(story, STORY)
        story.world.kill_at = story.world.steps + second
        await live(story, [("sleep", 60.0)])
        await live(story, [("sleep", 7200.0)])
        story.check()


async def test_a_summary_that_was_answered_and_not_handed_over_is_the_same_one_afterwards(
    autojump_clock: MockClock,
) -> None:
    """The run has ended, durably; its answer is asked for again by its name, and the agent does not do it twice."""
    world = World()
    counted: list[str] = []

    def count_up(request: BeatRequest) -> BeatAnswer:
        counted.append(request.run_id)
        return BeatAnswer(ok=True, text=f"answer {len(counted)} " + "x" * 400)

    world.answer = count_up
    story = Story(world)
    await live(story, [("exec", 0), ("sleep", 0.5), ("kill", 1), ("sleep", 10.0)])  # the end of the run, and no further
    assert (len(counted), world.alerts) == (1, [])
    await live(story, [("sleep", 10.0)])
    assert len(counted) == 1
    assert [alert.text[:8] for alert in world.alerts] == ["answer 1"]
    assert world.unclaimed(MAIN) == []


@pytest.mark.parametrize(("name", "reason"), [("exec", "exec"), ("cron", "cron"), ("other", "wake")])
async def test_a_wake_that_was_lost_with_the_supervisor_is_made_up_for(
    autojump_clock: MockClock, name: str, reason: str
) -> None:
    story = Story(World())
    story.world.answer = report_all
    await live(story, [(name, 0), ("sleep", 0.1)])
    assert story.world.started == []
    await live(story, [("sleep", 3.0)])
    story.check()
    assert [alert.reason for alert in story.world.alerts] == [reason]


async def test_two_agents_that_share_a_conversation_do_not_tell_it_the_same(autojump_clock: MockClock) -> None:
    world = World()
    world.answer = report_all
    async with trio.open_nursery() as nursery:
        heartbeat = await world.open({"main": ON, "other": ON})
        await nursery.start(heartbeat.run)
        world.inject("event 1.")
        heartbeat.wake("main", WakeReason.EXEC, MAIN)
        heartbeat.wake("other", WakeReason.EXEC, MAIN)
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert [alert.text for alert in world.alerts] == ["event 1."]


NAMES = ("exec", "cron", "other", "fail", "work", "busy", "free", "turn", "end")
HISTORY = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.just(0.0)),
        st.tuples(st.just("sleep"), st.sampled_from([0.1, 0.25, 0.6, 1.0, 5.0, 31.0, 400.0])),
        st.tuples(st.just("kill"), st.integers(0, 12).map(float)),
    ),
    max_size=30,
)


@given(script=HISTORY)
@settings(max_examples=150)
def test_whatever_happens_each_event_is_told_once(script: list[tuple[str, float]]) -> None:
    world = World()
    world.answer = report_all
    trio.run(partial(to_the_end, Story(world), script), clock=MockClock(autojump_threshold=0))
