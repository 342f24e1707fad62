"""The writing side of a WebSocket, over a peer that reads when the test wants it to."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from doors.limits import OutputBudget, OutputShare
from doors.websocket.sender import FrameSender

LIMIT = 100


class Reader:
    """Takes what is sent while ``reads`` is set."""

    def __init__(self) -> None:
        self.reads = trio.Event()
        self.got: list[bytes] = []
        self.closed: dict[str, Any] | None = None
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
        self.closed = message


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
async def sender(reader: Reader, nursery: trio.Nursery) -> FrameSender:
    """One that runs, with a first frame on its way."""
    made = FrameSender(reader.send, reader.close, LIMIT, reader.share)
    nursery.start_soon(made.run)
    made.put_nowait(b"first")
    await wait_all_tasks_blocked()
    return made


async def test_frames_arrive_in_order_and_those_that_wait_together(sender: FrameSender, reader: Reader) -> None:
    for frame in (b"a", b"b"):
        await sender.put(frame)
    reader.reads.set()
    await wait_all_tasks_blocked()
    assert reader.got == [b"first", b"a", b"b"]
    assert reader.share.charged == 0


async def test_an_answer_waits_for_room_and_is_counted_while_it_does(
    sender: FrameSender, reader: Reader, nursery: trio.Nursery
) -> None:
    await sender.put(b"x" * 90)
    nursery.start_soon(sender.put, b"y" * 50)
    await wait_all_tasks_blocked()
    assert reader.share.charged == len("first") + 90 + 50
    assert sender._queue.size == 90
    reader.reads.set()
    await wait_all_tasks_blocked()
    assert reader.got[1:] == [b"x" * 90, b"y" * 50]
    assert reader.share.charged == 0


async def test_who_offers_events_waits_for_us_and_never_for_the_peer(
    sender: FrameSender, reader: Reader, nursery: trio.Nursery
) -> None:
    sender.offer(b"x" * 50, is_droppable=False)
    with trio.fail_after(0):
        await sender.wait_drained()  # the peer does not read: that is its own affair
    reader.is_slow = False
    reader.reads.set()
    await wait_all_tasks_blocked()
    reader.reads = trio.Event()
    for _ in range(2):
        sender.offer(b"y" * 50, is_droppable=False)
        await wait_all_tasks_blocked()
    kept_up = trio.Event()

    async def keep_up() -> None:
        await sender.wait_drained()
        kept_up.set()

    nursery.start_soon(keep_up)
    await wait_all_tasks_blocked()
    assert not kept_up.is_set()
    reader.reads.set()
    await kept_up.wait()


async def test_the_end_comes_after_what_was_said_and_nothing_after_it(sender: FrameSender, reader: Reader) -> None:
    await sender.put(b"last")
    sender.close(1001, "x" * 119 + "\u4e16")
    await sender.put(b"too late")
    reader.reads.set()
    await wait_all_tasks_blocked()
    assert reader.got == [b"first", b"last"]
    assert reader.closed == {"type": "websocket.close", "code": 1001, "reason": "x" * 119}


async def test_an_end_at_once_forgets_what_waits_and_wakes_who_does(
    sender: FrameSender, reader: Reader, nursery: trio.Nursery
) -> None:
    await sender.put(b"x" * 90)
    nursery.start_soon(sender.put, b"y" * 50)
    await wait_all_tasks_blocked()
    sender.close(1008, "slow", at_once=True)
    sender.close(1001, "the first word counts")
    reader.reads.set()
    await wait_all_tasks_blocked()
    assert (reader.got, reader.closed) == ([b"first"], {"type": "websocket.close", "code": 1008, "reason": "slow"})
    assert reader.share.charged == 0


async def test_the_one_for_whom_most_waits_is_given_up_where_all_is_too_much(reader: Reader) -> None:
    sender = FrameSender(reader.send, reader.close, 10_000, reader.share)
    sender.put_nowait(b"x" * 1001)
    assert reader.given_up == [1001]
