"""What waits for one peer: bounded, in few sends, given up when nobody reads; and what all peers together may hold."""

import socket
from collections.abc import Iterator
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from doors.budgets import InputBudget, InputShare, OutputBudget, OutputShare
from doors.control.send_queue import PeerDisconnected, SendQueue
from errors import PoolSaturated

SOME = 1 << 20  # far more than a socket takes while nobody reads


class CountingSocket(socket.socket):
    """A sending side that counts how often it was used."""

    sends = 0

    def send(self, data: memoryview, flags: int = 0, /) -> int:  # type: ignore[override]  # one kind of buffer is enough
        sent = super().send(data, flags)
        self.sends += 1
        return sent


class Pair:
    """A queue, and the peer that reads what it sends when the test wants it to."""

    def __init__(self, sender: CountingSocket, peer: socket.socket) -> None:
        self.sender = sender
        self.peer = peer
        self.share = OutputShare(OutputBudget(10 * SOME), free=0, on_excess=print)
        self.queue = SendQueue(sender, limit=100, stall=30.0, share=self.share)

    def read(self) -> bytes:
        """What lies in the socket now."""
        taken = bytearray()
        try:
            while chunk := self.peer.recv(SOME):
                taken += chunk
        except BlockingIOError:
            pass
        return bytes(taken)

    async def read_all(self) -> bytes:
        """The same until nothing waits any more."""
        taken = b""
        while self.queue.held_bytes:
            taken += self.read()
            await wait_all_tasks_blocked()
        return taken + self.read()


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, peer = socket.socketpair()
    with CountingSocket(fileno=ours.detach()) as sender, peer:
        sender.settimeout(0)
        peer.settimeout(0)
        yield Pair(sender, peer)


async def test_what_gathers_leaves_in_one_send(pair: Pair, nursery: trio.Nursery) -> None:
    nursery.start_soon(pair.queue.send_forever)
    await wait_all_tasks_blocked()
    for number in range(20):
        await pair.queue.put(b"%03d\n" % number)
    await wait_all_tasks_blocked()
    assert pair.read() == b"".join(b"%03d\n" % number for number in range(20))
    assert (pair.sender.sends, pair.queue.held_bytes) == (1, 0)


def test_what_was_added_leaves_at_once_when_it_is_sent_now(pair: Pair) -> None:
    pair.queue.add(b"one ")
    pair.queue.add(b"two")
    assert pair.read() == b""
    pair.queue.send_now()
    assert (pair.read(), pair.sender.sends) == (b"one two", 1)


async def test_what_is_sent_leaves_before_its_sender_goes_on_with_all_that_gathered(pair: Pair) -> None:
    pair.queue.add(b"one ")
    await pair.queue.send(b"two")
    assert (pair.read(), pair.sender.sends) == (b"one two", 1)


async def test_what_the_socket_did_not_take_at_once_is_left_to_the_writer_in_order(
    pair: Pair, nursery: trio.Nursery
) -> None:
    nursery.start_soon(pair.queue.send_forever)
    await wait_all_tasks_blocked()
    for data in (b"a" * SOME, b"b"):
        pair.queue.add(data)
        pair.queue.send_now()
    assert await pair.read_all() == b"a" * SOME + b"b"


async def test_who_has_more_than_fits_waits_until_the_peer_reads(pair: Pair, nursery: trio.Nursery) -> None:
    pair.queue.put_nowait(b"x" * SOME)
    nursery.start_soon(pair.queue.send_forever)
    await wait_all_tasks_blocked()
    put = []

    async def fill() -> None:
        for number in range(10):
            await pair.queue.put(b"y" * 50)
            put.append(number)

    nursery.start_soon(fill)
    await wait_all_tasks_blocked()
    assert len(put) == 2
    taken = await pair.read_all()
    await wait_all_tasks_blocked()
    assert (len(put), taken + pair.read()) == (10, b"x" * SOME + b"y" * 500)


async def test_a_peer_that_reads_nothing_for_the_stall_time_is_gone(pair: Pair, autojump_clock: MockClock) -> None:
    pair.queue.put_nowait(b"x" * SOME)
    with pytest.raises(PeerDisconnected, match="read nothing for 30 s"):
        await pair.queue.send_forever()
    assert trio.current_time() == pytest.approx(30.0)


async def test_a_peer_that_reads_slowly_is_not_gone(
    pair: Pair, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    pair.queue.put_nowait(b"x" * SOME)

    async def read_slowly() -> None:
        taken = 0
        while taken < SOME:
            await trio.sleep(29)
            taken += len(pair.read())

    nursery.start_soon(read_slowly)
    await pair.queue.flush()
    assert trio.current_time() > 60


async def test_a_cancelled_send_loses_and_doubles_nothing(pair: Pair, autojump_clock: MockClock) -> None:
    pair.queue.put_nowait(b"x" * SOME)
    with trio.move_on_after(1):
        await pair.queue.send_forever()
    pair.queue.put_nowait(b"y")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.queue.flush)
        assert await pair.read_all() == b"x" * SOME + b"y"


async def test_last_words_find_room_and_are_bounded(pair: Pair) -> None:
    pair.queue.put_nowait(b"x" * 100)
    said = 0
    with trio.CancelScope() as scope:
        scope.cancel()
        while True:
            await pair.queue.put(b"y" * 10)
            said += 1
    assert said == 10


async def test_who_waits_shielded_for_room_has_its_last_word_when_the_writer_ends(
    pair: Pair, autojump_clock: MockClock
) -> None:
    pair.queue.put_nowait(b"x" * SOME)

    async def talk() -> None:
        with trio.CancelScope(shield=True):
            await pair.queue.put(b"y" * 100)
            await pair.queue.put(b"last")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.queue.send_forever)
        await wait_all_tasks_blocked()
        nursery.start_soon(talk)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert pair.queue.held_bytes > 104
    assert pair.read()


async def test_a_lost_peer_holds_back_nobody_and_who_talks_on_to_it_notices_its_own_end(pair: Pair) -> None:
    pair.queue.put_nowait(b"x" * 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.queue.put, b"y")
        await wait_all_tasks_blocked()
        pair.queue.discard()
        with trio.fail_after(20):
            while nursery.child_tasks:
                await trio.lowlevel.checkpoint()
    assert pair.queue.held_bytes == 0
    pair.queue.send_now()
    assert pair.read() == b""
    with trio.move_on_after(1) as scope:
        scope.cancel()
        while True:
            await pair.queue.put(b"words")
    assert scope.cancelled_caught


@pytest.mark.parametrize("is_sent_now", [False, True])
async def test_a_closed_socket_is_a_peer_gone_for_the_writer_to_notice(pair: Pair, *, is_sent_now: bool) -> None:
    if not is_sent_now:
        pair.queue.put_nowait(b"words")
        pair.peer.close()
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            with pytest.raises(PeerDisconnected, match="Broken pipe"):
                await pair.queue.send_forever()

        nursery.start_soon(write)
        await wait_all_tasks_blocked()
        if is_sent_now:
            pair.peer.close()
            pair.queue.add(b"words")
            pair.queue.send_now()


# --- what all peers together may hold --------------------------------------------------------------------------------


async def test_who_waits_for_room_is_charged_and_what_has_left_no_more(pair: Pair, nursery: trio.Nursery) -> None:
    share = OutputShare(OutputBudget(10 * SOME), free=100, on_excess=print)
    pair.queue = SendQueue(pair.sender, limit=100, stall=30.0, share=share)
    nursery.start_soon(pair.queue.send_forever)
    pair.queue.put_nowait(b"x" * SOME)
    await wait_all_tasks_blocked()
    for _ in range(3):
        nursery.start_soon(pair.queue.put, b"y" * 1000)
    await wait_all_tasks_blocked()
    assert share.charged == SOME + 3000 - 100, "a block counts whole until it has left"
    await pair.read_all()
    assert share.charged == 0


async def test_who_has_waited_in_vain_is_charged_no_more(pair: Pair) -> None:
    pair.queue.put_nowait(b"x" * 100)
    async with trio.open_nursery() as waiters:
        waiters.start_soon(pair.queue.put, b"y" * 1000)
        await wait_all_tasks_blocked()
        assert pair.share.charged == 1100
        pair.queue.put_nowait(b"z" * 100)  # so that there is no room for last words either
        waiters.cancel_scope.cancel()
    assert pair.share.charged == 200
    pair.queue.discard()
    assert pair.share.charged == 0


def test_where_too_much_waits_for_all_peers_the_one_for_whom_most_waits_is_given_up() -> None:
    given_up: list[tuple[str, int]] = []
    budget = OutputBudget(1000)
    note = lambda name, charged: given_up.append((name, charged))  # noqa: E731
    shares = {name: OutputShare(budget, free=10, on_excess=partial(note, name)) for name in "abc"}
    for name, held in (("a", 510), ("b", 310), ("c", 210)):
        shares[name].charge(held)
    assert given_up == []
    shares["c"].charge(211)
    assert given_up == [("a", 500)]
    shares["a"].charge(5000)
    assert shares["a"].charged == 0
    shares["b"].charge(10)
    shares["c"].charge(1010)
    assert given_up == [("a", 500)]
    shares["c"].charge(1011)
    assert given_up == [("a", 500), ("c", 1001)]


async def test_who_gives_itself_up_by_waiting_does_not_wait(pair: Pair) -> None:
    share = OutputShare(OutputBudget(500), free=0, on_excess=lambda _charged: queue.discard())
    queue = SendQueue(pair.sender, limit=100, stall=30.0, share=share)
    queue.put_nowait(b"x" * 100)
    with trio.fail_after(20):
        await queue.put(b"y" * 1000)
    assert queue.held_bytes == 0


def test_who_asks_for_too_much_of_the_common_room_holds_none_of_it() -> None:
    budget, free = InputBudget(100_000), 64 * 1024
    first, second, third = InputShare(budget), InputShare(budget), InputShare(budget)
    first.charge(free)
    first.charge(free + 60_000)
    with pytest.raises(PoolSaturated):
        second.charge(free + 60_000)
    third.charge(free + 40_000)
    first.release(free + 10_000)
    second.charge(free + 50_000)
    with pytest.raises(PoolSaturated):
        third.charge(free + 40_001)
