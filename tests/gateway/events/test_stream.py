"""Whoever joins, leaves, resumes, is slow, or outlives a restart sees each event once, in order, and all text."""

import json
import random
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import SubscriberBehind
from gateway.events import cursor, snapshots
from gateway.events.bus import EventBus, TextKind
from gateway.settings import EventSettings
from tests.gateway.events.stand_in import MemoryStore, raws
from wire.events import EventChannel, EventType
from wire.units import ByteCount

RING = 3000
"""Bytes: some ten items."""

SESSIONS = ["a", "b", "c"]
EVENT_TYPES = [
    *(EventType.TOOL_START, EventType.REPLY, EventType.SESSION_PATCHED),
    *(EventType.RUN_START, EventType.UI_REQUEST, EventType.EXEC_LOST),
]
"""Without a commit, and with one."""
TEXTS: list[TextKind] = ["text_chunk", "think_chunk"]
SNAPSHOTS = {"text_snapshot": "text_chunk", "think_snapshot": "think_chunk"}


class Told(NamedTuple):
    """What was published under one seq."""

    session: str
    run_id: str | None
    channel: str
    type: str
    content: Any


class View(NamedTuple):
    """What a reader asks for."""

    session: str | None = None
    run_id: str | None = None
    channels: frozenset[EventChannel] | None = None
    kinds: frozenset[str] | None = None

    def admits(self, told: Told) -> bool:
        return (
            self.session in (None, told.session)
            and self.run_id in (None, told.run_id)
            and (self.channels is None or told.channel in self.channels)
            and (self.kinds is None or told.type in self.kinds or f"{told.type[:-5]}snapshot" in self.kinds)
        )


class Reader:
    """One reader over several cursors; checks each envelope as it comes."""

    def __init__(self, stage: "Stage", view: View, since: int | None) -> None:
        self.stage = stage
        self.view = view
        self.join(since)

    def join(self, since: int | None) -> None:
        self.cursor = self.stage.bus.open_cursor(**self.view._asdict(), since=since)
        self.bookmark = self.cursor.position

    def leave_and_resume(self) -> None:
        self.join(self.bookmark)

    async def read(self, max_bytes: int) -> None:
        """Take once, or find that there is nothing, or be cut off and resume."""
        cut_off: SubscriberBehind | None = None
        with trio.move_on_after(1) as patience:
            try:
                taken = await self.cursor.read(max_bytes)
            except SubscriberBehind as exc:
                cut_off = exc
            else:
                for envelope in json.loads(b"[" + taken.body + b"]"):
                    self.check(envelope)
        if patience.cancelled_caught:
            assert self.missing(self.stage.bus.head) == [], "it waits for what it could have"
        position = self.cursor.position if cut_off is None else cut_off.bookmark
        assert self.missing(position) == [], "its bookmark is ahead of it"
        self.bookmark = position
        if cut_off is not None:
            assert self.missing(self.stage.bus.head), "it was cut off with nothing to see"
            self.leave_and_resume()

    async def read_to_the_end(self) -> None:
        with trio.fail_after(100):
            while self.bookmark < self.stage.bus.head:
                await self.read(4000)

    def missing(self, upto: int) -> list[int]:
        """What it should have been given up to a seq, and was not."""
        told = self.stage.told
        return [seq for seq in range(self.bookmark + 1, upto + 1) if seq in told and self.view.admits(told[seq])]

    def check(self, envelope: dict[str, Any]) -> None:
        """It may be seen, is new, is the next one, and holds what was published."""
        seq = envelope["seq"]
        assert self.bookmark < seq
        self.stage.check_committed(seq)
        due = self.missing(seq)
        told = [self.stage.told[each] for each in due]
        first = told[0]
        assert {each[:4] for each in told} == {first[:4]}, "an event was left out"
        assert (envelope["session"], envelope.get("run_id")) == (first.session, first.run_id)
        assert envelope["channel"] == first.channel
        assert due[-1] == seq
        if envelope["type"] in SNAPSHOTS:
            assert SNAPSHOTS[envelope["type"]] == first.type
            data = envelope["data"]
            assert (data["from_seq"], data["to_seq"]) == (due[0], seq)
            assert data["text"] == "".join(each.content for each in told)
        else:
            assert len(due) == 1
            assert envelope["type"] == first.type
            assert envelope.get("data") == ({"delta": first.content} if first.type in TEXTS else first.content)
        self.bookmark = seq


class Stage:
    """A bus over a store, what was published, who reads."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.store = MemoryStore()
        self.told: dict[int, Told] = {}
        self.durable: list[int] = []
        self.readers: list[Reader] = []

    async def open(self) -> None:
        """A life of the supervisor."""
        self.bus = EventBus(
            self.store, EventSettings(ring=ByteCount(RING)), first_seq=self.store.first_seq, clock=lambda: 2.0
        )
        self.scope: trio.CancelScope = await self.nursery.start(self.live)

    async def live(self, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.bus.run)
                task_status.started(scope)

    async def restart(self, gap: int) -> None:
        """A clean stop and the next life; readers resume with their bookmarks."""
        self.store.let_commit()
        self.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        self.store = self.store.next_life(gap)
        await self.open()
        for reader in self.readers:
            reader.leave_and_resume()

    def check_committed(self, seq: int) -> None:
        """No reader may see ``seq`` while it, or something before it, is promised to be durable and is not."""
        if not self.store.has_been_degraded:
            assert all(each <= self.store.durable_upto for each in self.durable if each <= seq)

    def publish(self, session: str, run_id: str | None, type_: EventType) -> None:
        data = {"n": len(self.told)}
        seq = self.bus.publish(session, type_, data, run_id=run_id)
        self.told[seq] = Told(session, run_id, type_.channel.value, type_, data)
        if type_.is_durable:
            self.durable.append(seq)

    def publish_text(self, session: str, run_id: str | None, type_: TextKind, count: int) -> None:
        first = self.store.noted + 1
        texts = [f"{session}{first + number}é\n" for number in range(count)]
        self.bus.publish_text(session, type_, raws(*texts), run_id=run_id)
        for seq, text in enumerate(texts, first):
            self.told[seq] = Told(session, run_id, "progress", type_, text)


WEIGHTS = {
    "event": 6.0,
    "text": 8.0,
    "read": 8.0,
    "join": 1.0,
    "leave": 2.0,
    "hold": 2.0,
    "commit": 1.0,
    "degrade": 0.3,
    "recover": 0.5,
    "restart": 0.3,
}


def some_view(choice: random.Random) -> View:
    return View(
        session=choice.choice([None, None, "a", "b"]),
        run_id=choice.choice([None, None, "r1"]),
        channels=choice.choice([None, None, frozenset(choice.sample(list(EventChannel), 2))]),
        kinds=choice.choice([None, None, frozenset({"session_patched"}), frozenset({"think_snapshot", "text_chunk"})]),
    )


async def step(stage: Stage, choice: random.Random) -> None:
    name = choice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    session, run_id = choice.choice(SESSIONS), choice.choice([None, "r1", "r1", "r2"])
    size, number = choice.choice([1, 1, 2, 5, 20]), choice.randrange(6)
    reader = stage.readers[number % len(stage.readers)]
    match name:
        case "event":
            stage.publish(session, run_id, choice.choice(EVENT_TYPES))
        case "text":
            stage.publish_text(session, run_id, choice.choice(TEXTS), size)
        case "hold":
            stage.store.hold_commits()
        case "commit":
            stage.store.let_commit()
            await trio.testing.wait_all_tasks_blocked()
        case "degrade" | "recover":
            stage.store.degrade(now=name == "degrade")
        case "join" if len(stage.readers) < 6:
            stage.readers.append(Reader(stage, some_view(choice), int(stage.bus.head * choice.random())))
        case "restart":
            await stage.restart(size)
        case "leave":
            reader.leave_and_resume()
        case "read":
            await reader.read(size * 200)


async def play(seed: int, length: int) -> None:
    choice = random.Random(seed)  # a script of this length is mostly interesting, one that Hypothesis draws is not
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery)
        await stage.open()
        stage.readers = [Reader(stage, View(), None), Reader(stage, View(session="a"), None)]
        for _ in range(length):
            await step(stage, choice)
        stage.store.let_commit()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.bus.head == stage.store.noted or not stage.told
        for reader in stage.readers:
            await reader.read_to_the_end()
        nursery.cancel_scope.cancel()


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    length=st.integers(1, 120),
    small=st.sampled_from([(1, 16), (2, 32), (5, 16), (128, 256)]),
)
def test_every_reader_sees_each_event_once_and_in_order_whatever_happens(
    seed: int, length: int, small: tuple[int, int]
) -> None:
    page, window = small
    with ExitStack() as stack:
        stack.enter_context(patch.object(cursor, "_PAGE_ROWS", page))
        stack.enter_context(patch.object(snapshots, "BLOCK", 8))
        stack.enter_context(patch.object(snapshots, "WINDOW", window))
        trio.run(play, seed, length, clock=trio.testing.MockClock(autojump_threshold=0))
