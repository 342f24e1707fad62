"""What waits for one peer: bounded, in few sends, given up when nobody reads."""

import pytest
import trio

from doors.outbox import Outbox, PeerGone


class Pipe:
    """A socket's sending side: takes ``capacity`` bytes, then waits until somebody reads."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.taken = bytearray()
        self.sends = 0
        self.error: OSError | None = None
        self._room = trio.Event()

    def read(self, count: int) -> None:
        self.capacity += count
        self._room.set()
        self._room = trio.Event()

    async def send(self, data: memoryview) -> int:
        if self.error is not None:
            raise self.error
        while self.capacity == 0:
            await self._room.wait()
        await trio.lowlevel.checkpoint()
        part = bytes(data[: self.capacity])
        self.capacity -= len(part)
        self.taken += part
        self.sends += 1
        return len(part)


def outbox(pipe: Pipe, *, limit: int = 100, stall: float = 30.0) -> Outbox:
    return Outbox(pipe, limit=limit, stall=stall)  # type: ignore[arg-type]  # the one method it uses of a socket


async def test_what_gathers_leaves_in_one_send(nursery: trio.Nursery) -> None:
    pipe = Pipe(10_000)
    box = outbox(pipe, limit=10_000)
    nursery.start_soon(box.send_forever)
    for number in range(1000):
        await box.put(b"%03d\n" % number)
    await trio.testing.wait_all_tasks_blocked()
    assert bytes(pipe.taken) == b"".join(b"%03d\n" % number for number in range(1000))
    assert pipe.sends == 1
    assert box.held_bytes == 0


async def test_who_has_more_than_fits_waits_until_the_peer_reads(nursery: trio.Nursery) -> None:
    pipe = Pipe(0)
    box = outbox(pipe, limit=100)
    nursery.start_soon(box.send_forever)
    put = []

    async def fill() -> None:
        for number in range(10):
            await box.put(b"x" * 50)
            put.append(number)

    nursery.start_soon(fill)
    await trio.testing.wait_all_tasks_blocked()
    assert box.held_bytes <= 100 + 100 + 50
    assert len(put) < 10
    pipe.read(10_000)
    await trio.testing.wait_all_tasks_blocked()
    assert len(put) == 10
    assert len(pipe.taken) == 500


async def test_a_peer_that_reads_nothing_for_the_stall_time_is_gone(autojump_clock: trio.testing.MockClock) -> None:
    box = outbox(Pipe(0), stall=30.0)
    box.put_nowait(b"words")
    with pytest.raises(PeerGone, match="read nothing for 30 s"):
        await box.send_forever()
    assert trio.current_time() == pytest.approx(30.0)


async def test_a_peer_that_reads_slowly_is_not_gone(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    pipe = Pipe(1)
    box = outbox(pipe, stall=30.0)
    box.put_nowait(b"words")

    async def read_slowly() -> None:
        for _ in range(4):
            await trio.sleep(29)
            pipe.read(1)

    nursery.start_soon(read_slowly)
    await box.flush()
    assert bytes(pipe.taken) == b"words"


async def test_a_cancelled_send_loses_and_doubles_nothing(autojump_clock: trio.testing.MockClock) -> None:
    pipe = Pipe(3)
    box = outbox(pipe)
    box.put_nowait(b"abcdef")
    with trio.move_on_after(1):
        await box.send_forever()
    box.put_nowait(b"ghi")
    pipe.read(100)
    await box.flush()
    assert bytes(pipe.taken) == b"abcdefghi"


async def test_a_closed_socket_is_a_peer_gone() -> None:
    pipe = Pipe(1)
    pipe.error = BrokenPipeError(32, "Broken pipe")
    box = outbox(pipe)
    box.put_nowait(b"words")
    with pytest.raises(PeerGone, match="Broken pipe"):
        await box.send_forever()
