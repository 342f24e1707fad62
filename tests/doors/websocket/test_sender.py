"""The writing side of a WebSocket: what a slow peer loses and what it must not; and at which pace events are sent."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from doors.budgets import OutputBudget, OutputShare
from doors.http.services import HttpServices
from doors.websocket import hub as hub_module
from doors.websocket.events import OutboundEvent
from doors.websocket.frames import SocketLimits
from doors.websocket.hub import EventHub
from doors.websocket.sender import EnqueueResult, FrameQueue, FrameSender

# --- the queue -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "put", "offers", "results", "left"),
    [
        (100, [b"one", b"two", b"three"], [], [], [[b"one", b"two"], [b"three"], []]),
        (10, [b"x" * 50, b"y"], [], [], [[b"x" * 50], [b"y"], []]),
        (10, [], [(b"x" * 50, True)], [(False, 0)], [[b"x" * 50], []]),
        (10, [], [(b"x" * 8, True), (b"y" * 3, True)], [(False, 0), (False, 1)], [[b"x" * 8], []]),
        (10, [b"x" * 9], [(b"yy", False)], [(True, 0)], [[b"x" * 9], []]),
        (
            10,
            [],
            [(b"aaa", True), (b"bbb", False), (b"ccc", True), (b"dddd", False)],
            [(False, 0)] * 3 + [(False, 2)],
            [[b"bbb", b"dddd"], []],
        ),
    ],
    ids=["in order", "too large for others", "alone", "lost", "the peer is too slow", "takes the room of others"],
)
def test_frames_leave_in_order_and_what_must_not_be_lost_takes_the_room_of_what_may(
    limit: int,
    put: list[bytes],
    offers: list[tuple[bytes, bool]],
    results: list[tuple[bool, int]],
    left: list[list[bytes]],
) -> None:
    queue = FrameQueue(limit)
    for frame in put:
        queue.put(frame)
    found = [queue.offer(frame, is_droppable=is_droppable) for frame, is_droppable in offers]
    assert found == [EnqueueResult(is_full=is_full, lost=lost) for is_full, lost in results]
    assert ([queue.pop_batch(7) for _ in left], queue.size) == (left, 0)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=100), st.integers(1, 30), st.integers(1, 40))
def test_nothing_that_must_not_be_lost_is_and_the_books_are_right(
    offers: list[tuple[int, bool]], limit: int, take: int
) -> None:
    queue = FrameQueue(limit)
    expected, left, lost, dropped = [], [], 0, 0
    for number, (size, is_droppable) in enumerate(offers):
        frame = bytes([number]) * size
        offer = queue.offer(frame, is_droppable=is_droppable)
        lost += offer.lost
        dropped += is_droppable
        if not is_droppable and not offer.is_full:
            expected.append(frame)
        assert queue.size <= max(limit, 9)
        if number % 3 == 2:
            left += queue.pop_batch(take)
    left += queue.pop_batch(10**6)
    assert [frame for frame in left if frame in expected] == expected
    assert len(left) + lost == dropped + len(expected), "each was sent or is counted"
    assert (queue.size, len(queue)) == (0, 0)
    assert not queue.offer(b"z" * 99, is_droppable=False).is_full, "nothing is held against it any more"


# --- the sender, over a peer that reads when the test wants it to ----------------------------------------------------


class Reader:
    """Takes what is sent while ``reads`` is set."""

    def __init__(self) -> None:
        self.reads = trio.Event()
        self.got: list[bytes] = []
        self.closed: tuple[int, str] | None = None
        self.given_up: list[int] = []
        self.is_slow = True
        """Whether what is not taken at once waits for the peer, not for us."""
        self.share = OutputShare(OutputBudget(1000), free=0, on_excess=self.given_up.append)

    async def send(self, frames: Sequence[bytes], on_blocked: Callable[[], object]) -> None:
        if not self.reads.is_set() and self.is_slow:
            on_blocked()
        await self.reads.wait()
        self.got += frames

    async def close(self, message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        assert message["type"] == "websocket.close"
        self.closed = message["code"], message["reason"]

    async def read(self) -> list[bytes]:
        """All that is sent from now on, until nothing more is."""
        self.reads.set()
        await wait_all_tasks_blocked()
        return self.got


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
async def sender(reader: Reader, nursery: trio.Nursery) -> FrameSender:
    """One that runs, with a first frame on its way."""
    made = FrameSender(reader.send, reader.close, 100, reader.share)
    nursery.start_soon(made.run)
    made.put_nowait(b"first")
    await wait_all_tasks_blocked()
    return made


async def test_an_answer_waits_for_room_and_is_counted_while_it_does(
    sender: FrameSender, reader: Reader, nursery: trio.Nursery
) -> None:
    await sender.put(b"x" * 90)
    nursery.start_soon(sender.put, b"y" * 50)
    await wait_all_tasks_blocked()
    assert (reader.share.charged, sender._queue.size) == (len("first") + 90 + 50, 90)
    assert await reader.read() == [b"first", b"x" * 90, b"y" * 50]
    assert reader.share.charged == 0


async def test_who_offers_events_waits_for_us_and_never_for_the_peer(
    sender: FrameSender, reader: Reader, nursery: trio.Nursery
) -> None:
    sender.offer(b"x" * 50, is_droppable=False)
    with trio.fail_after(0):
        await sender.wait_drained()  # the peer does not read: that is its own affair
    reader.is_slow = False
    await reader.read()
    reader.reads = trio.Event()
    for _ in range(2):
        sender.offer(b"y" * 50, is_droppable=False)
        await wait_all_tasks_blocked()
    async with trio.open_nursery() as waiting:
        waiting.start_soon(sender.wait_drained)
        await wait_all_tasks_blocked()
        assert waiting.child_tasks
        reader.reads.set()


async def test_the_end_comes_after_what_was_said_and_nothing_after_it(sender: FrameSender, reader: Reader) -> None:
    await sender.put(b"last")
    sender.close(1001, "x" * 119 + "\u4e16")
    await sender.put(b"too late")
    assert (await reader.read(), reader.closed) == ([b"first", b"last"], (1001, "x" * 119))


async def test_an_end_at_once_forgets_what_waits_and_wakes_who_does(
    sender: FrameSender, reader: Reader, nursery: trio.Nursery
) -> None:
    await sender.put(b"x" * 90)
    nursery.start_soon(sender.put, b"y" * 50)
    await wait_all_tasks_blocked()
    sender.close(1008, "slow", at_once=True)
    sender.close(1001, "the first word counts")
    assert (await reader.read(), reader.closed) == ([b"first"], (1008, "slow"))
    assert reader.share.charged == 0


async def test_the_one_for_whom_most_waits_is_given_up_where_all_is_too_much(reader: Reader) -> None:
    FrameSender(reader.send, reader.close, 10_000, reader.share).put_nowait(b"x" * 1001)
    assert reader.given_up == [1001]


# --- the hub: at the pace at which the server itself can send --------------------------------------------------------


class Gateway:
    """Pushes one batch of events to whoever subscribes; then ends the subscription as behind, once, and is quiet."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.since: list[int] = []

    async def call(self, method: str, params: dict[str, Any], caller: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if method == "status":
            return SimpleNamespace(gateway=SimpleNamespace(events=SimpleNamespace(head=50_000)))
        self.since.append(params["since"])
        caller.start(lambda: self._push(caller))
        return None

    async def _push(self, caller: Any) -> None:
        if len(self.since) > 1:
            await trio.sleep_forever()
        call = {"id": "t1", "name": "bash", "input_preview": "", "state": "DONE"}
        event = {"ts": 1.0, "session": "alice", "run_id": "r1", "type": "tool:end", "data": {"call": call}}
        events = [{**event, "seq": 50_001 + number} for number in range(self.count)]
        await caller.push_encoded("events", msgspec.json.encode({"events": events}))
        await caller.push_encoded("subscription_ended", b'{"bookmark":70000,"reason":"behind"}')


class Listener:
    """Keeps how many events came before it was let keep up."""

    def __init__(self) -> None:
        self.heard: list[int] = [0]
        self.missed = 0
        self.presence: dict[str, Any] = {}

    def on_event(self, _event: OutboundEvent) -> None:
        self.heard[-1] += 1

    async def wait_drained(self) -> None:
        await trio.lowlevel.checkpoint()
        self.heard.append(0)

    def on_gap(self) -> None:
        self.missed += 1


async def start_hub(nursery: trio.Nursery, gateway: Gateway, *listeners: Listener) -> EventHub:
    hub = EventHub(cast("HttpServices", gateway), SocketLimits())
    await nursery.start(lambda task_status: hub.run(task_status=task_status))
    for listener in listeners:
        hub.add_listener(listener)
    return hub


async def test_events_are_sent_some_at_a_time_and_nobody_is_left_behind(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "_DELIVERIES_PER_STEP", 20)
    gateway, listeners = Gateway(95), [Listener(), Listener()]
    await start_hub(nursery, gateway, *listeners)
    await trio.sleep(1)
    for listener in listeners:
        assert (sum(listener.heard), listener.missed) == (95, 0)
        assert max(listener.heard) <= 11, "ten at a time for two, and one"
    assert gateway.since == [30_000, 70_000], "it looks back at first, and goes on from the bookmark it was behind at"


async def test_who_listens_to_nothing_costs_nothing_after_a_minute(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    gateway, listener = Gateway(0), Listener()
    hub = await start_hub(nursery, gateway, listener)
    hub.remove_listener(listener)
    await trio.sleep(61)
    hub.add_listener(listener)
    await trio.sleep(1)
    assert gateway.since == [30_000, 70_000, 30_000], "it begins as at first"
