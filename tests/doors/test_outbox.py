"""What waits for one peer: bounded, in few sends, given up when nobody reads."""

import socket
from collections.abc import Iterator
from functools import partial

import pytest
import trio

from doors.control.send_queue import PeerDisconnected, SendQueue
from doors.limits import OutputBudget, OutputShare

SOME = 1 << 20  # far more than a socket takes while nobody reads


class CountingSocket(socket.socket):
    """A sending side that tells how often it was used."""

    sends = 0

    def send(self, data: memoryview, flags: int = 0, /) -> int:  # type: ignore[override]  # one kind of buffer is enough
        sent = super().send(data, flags)
        self.sends += 1
        return sent


@pytest.fixture
def pair() -> Iterator[tuple[CountingSocket, socket.socket]]:
    ours, peer = socket.socketpair()
    with CountingSocket(fileno=ours.detach()) as sender, peer:
        sender.settimeout(0)
        peer.settimeout(0)
        yield sender, peer


Pair = tuple[CountingSocket, socket.socket]


def outbox(
    sock: socket.socket, *, limit: int = 100, stall: float = 30.0, share: OutputShare | None = None
) -> SendQueue:
    share = share or OutputShare(OutputBudget(10 * SOME), free=0, on_excess=print)
    return SendQueue(sock, limit=limit, stall=stall, share=share)


def read_all(peer: socket.socket) -> bytes:
    """What lies in the socket now."""
    taken = bytearray()
    while True:
        try:
            chunk = peer.recv(SOME)
        except BlockingIOError:
            return bytes(taken)
        if not chunk:
            return bytes(taken)
        taken += chunk


async def test_what_gathers_leaves_in_one_send(pair: Pair, nursery: trio.Nursery) -> None:
    sender, peer = pair
    box = outbox(sender, limit=10_000)
    nursery.start_soon(box.send_forever)
    await trio.testing.wait_all_tasks_blocked()
    for number in range(1000):
        await box.put(b"%03d\n" % number)
    await trio.testing.wait_all_tasks_blocked()
    assert read_all(peer) == b"".join(b"%03d\n" % number for number in range(1000))
    assert sender.sends == 1
    assert box.held_bytes == 0


def test_what_was_added_leaves_at_once_when_it_is_sent_now(pair: Pair) -> None:
    sender, peer = pair
    box = outbox(sender)
    box.add(b"one ")
    box.add(b"two")
    assert read_all(peer) == b""
    box.send_now()
    assert read_all(peer) == b"one two"
    assert sender.sends == 1


async def test_what_the_socket_did_not_take_at_once_is_left_to_the_writer_in_order(
    pair: Pair, nursery: trio.Nursery
) -> None:
    sender, peer = pair
    box = outbox(sender)
    nursery.start_soon(box.send_forever)
    await trio.testing.wait_all_tasks_blocked()
    box.add(b"a" * SOME)
    box.send_now()
    box.add(b"b")
    box.send_now()
    taken = b""
    while box.held_bytes:
        taken += read_all(peer)
        await trio.testing.wait_all_tasks_blocked()
    assert taken + read_all(peer) == b"a" * SOME + b"b"


async def test_who_has_more_than_fits_waits_until_the_peer_reads(pair: Pair, nursery: trio.Nursery) -> None:
    sender, peer = pair
    box = outbox(sender, limit=100)
    box.put_nowait(b"x" * SOME)
    nursery.start_soon(box.send_forever)
    await trio.testing.wait_all_tasks_blocked()
    put = []

    async def fill() -> None:
        for number in range(10):
            await box.put(b"y" * 50)
            put.append(number)

    nursery.start_soon(fill)
    await trio.testing.wait_all_tasks_blocked()
    assert len(put) == 2
    taken = read_all(peer)
    while box.held_bytes:
        await trio.testing.wait_all_tasks_blocked()
        taken += read_all(peer)
    await trio.testing.wait_all_tasks_blocked()
    assert len(put) == 10
    assert (taken + read_all(peer)) == b"x" * SOME + b"y" * 500


async def test_a_peer_that_reads_nothing_for_the_stall_time_is_gone(
    pair: Pair, autojump_clock: trio.testing.MockClock
) -> None:
    box = outbox(pair[0], stall=30.0)
    box.put_nowait(b"x" * SOME)
    with pytest.raises(PeerDisconnected, match="read nothing for 30 s"):
        await box.send_forever()
    assert trio.current_time() == pytest.approx(30.0)


async def test_a_peer_that_reads_slowly_is_not_gone(
    pair: Pair, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    sender, peer = pair
    box = outbox(sender, stall=30.0)
    box.put_nowait(b"x" * SOME)
    taken = 0

    async def read_slowly() -> None:
        nonlocal taken
        while taken < SOME:
            await trio.sleep(29)
            taken += len(read_all(peer))

    nursery.start_soon(read_slowly)
    await box.flush()
    assert trio.current_time() > 60


async def test_a_cancelled_send_loses_and_doubles_nothing(pair: Pair, autojump_clock: trio.testing.MockClock) -> None:
    sender, peer = pair
    box = outbox(sender)
    box.put_nowait(b"x" * SOME)
    with trio.move_on_after(1):
        await box.send_forever()
    box.put_nowait(b"y")
    taken = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.flush)
        while box.held_bytes:
            taken += read_all(peer)
            await trio.testing.wait_all_tasks_blocked()
    assert taken + read_all(peer) == b"x" * SOME + b"y"


async def test_last_words_find_room_and_are_bounded(pair: Pair) -> None:
    box = outbox(pair[0], limit=100)
    box.put_nowait(b"x" * 100)
    said = 0
    with trio.CancelScope() as scope:
        scope.cancel()
        while True:
            await box.put(b"y" * 10)
            said += 1
    assert said == 10


async def test_who_waits_shielded_for_room_has_its_last_word_when_the_writer_ends(
    pair: Pair, autojump_clock: trio.testing.MockClock
) -> None:
    sender, peer = pair
    box = outbox(sender, limit=100)
    box.put_nowait(b"x" * SOME)

    async def talk() -> None:
        with trio.CancelScope(shield=True):
            await box.put(b"y" * 100)
            await box.put(b"last")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.send_forever)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(talk)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert box.held_bytes > 104
    assert read_all(peer)


async def test_a_lost_peer_holds_back_nobody_and_is_told_nothing_more(pair: Pair, nursery: trio.Nursery) -> None:
    sender, peer = pair
    box = outbox(sender, limit=100)
    box.put_nowait(b"x" * 100)
    ended = trio.Event()

    async def talk() -> None:
        with trio.CancelScope(shield=True):
            await box.put(b"y")
        ended.set()

    nursery.start_soon(talk)
    await trio.testing.wait_all_tasks_blocked()
    box.discard()
    with trio.fail_after(20):
        await ended.wait()
    assert box.held_bytes == 0
    box.send_now()
    assert read_all(peer) == b""


async def test_who_talks_on_to_a_lost_peer_notices_its_own_end(pair: Pair) -> None:
    box = outbox(pair[0])
    box.discard()
    with trio.move_on_after(1) as scope:
        scope.cancel()
        while True:
            await box.put(b"words")
    assert scope.cancelled_caught


async def test_a_closed_socket_is_a_peer_gone(pair: Pair) -> None:
    sender, peer = pair
    peer.close()
    box = outbox(sender)
    box.put_nowait(b"words")
    with pytest.raises(PeerDisconnected, match="Broken pipe"):
        await box.send_forever()


async def test_sending_now_to_a_closed_socket_is_the_writers_to_notice(pair: Pair) -> None:
    sender, peer = pair
    box = outbox(sender)
    noticed = trio.Event()

    async def write() -> None:
        with pytest.raises(PeerDisconnected):
            await box.send_forever()
        noticed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        peer.close()
        box.add(b"words")
        box.send_now()
        with trio.fail_after(20):
            await noticed.wait()


# --- what it is charged for -----------------------------------------------------------------------------------------


async def test_who_waits_for_room_is_charged_and_what_has_left_no_more(pair: Pair, nursery: trio.Nursery) -> None:
    sender, peer = pair
    share = OutputShare(OutputBudget(10 * SOME), free=100, on_excess=print)
    box = outbox(sender, limit=100, share=share)
    nursery.start_soon(box.send_forever)
    box.put_nowait(b"x" * SOME)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(3):
        nursery.start_soon(box.put, b"y" * 1000)
    await trio.testing.wait_all_tasks_blocked()
    assert share.charged == SOME + 3000 - 100, "a block counts whole until it has left"
    while box.held_bytes:
        read_all(peer)
        await trio.testing.wait_all_tasks_blocked()
    assert share.charged == 0


async def test_who_has_waited_in_vain_is_charged_no_more(pair: Pair) -> None:
    share = OutputShare(OutputBudget(10 * SOME), free=0, on_excess=print)
    box = outbox(pair[0], share=share)
    box.put_nowait(b"x" * 100)
    async with trio.open_nursery() as waiters:
        waiters.start_soon(box.put, b"y" * 1000)
        await trio.testing.wait_all_tasks_blocked()
        assert share.charged == 1100
        box.put_nowait(b"z" * 100)  # so that there is no room for last words either
        waiters.cancel_scope.cancel()
    assert share.charged == 200
    box.discard()
    assert share.charged == 0


def test_where_too_much_waits_for_all_peers_the_one_for_whom_most_waits_is_given_up() -> None:
    given_up: list[tuple[str, int]] = []

    def note(name: str, charged: int) -> None:
        given_up.append((name, charged))

    budget = OutputBudget(1000)
    shares = {name: OutputShare(budget, free=10, on_excess=partial(note, name)) for name in "abc"}
    shares["a"].charge(510)
    shares["b"].charge(310)
    shares["c"].charge(210)
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
    share = OutputShare(OutputBudget(500), free=0, on_excess=lambda _charged: box.discard())
    box = outbox(pair[0], share=share)
    box.put_nowait(b"x" * 100)
    with trio.fail_after(20):
        await box.put(b"y" * 1000)
    assert box.held_bytes == 0
