"""What a slow peer loses, and what it must not."""

from hypothesis import given
from hypothesis import strategies as st

from doors.websocket.frame_queue import EnqueueResult, FrameQueue

TAKEN, DROPPED, FULL = (
    EnqueueResult(is_full=False, lost=0),
    EnqueueResult(is_full=False, lost=1),
    EnqueueResult(is_full=True, lost=0),
)


def test_frames_leave_in_the_order_in_which_they_came_and_several_at_once() -> None:
    box = FrameQueue(100)
    for frame in (b"one", b"two", b"three"):
        box.put(frame)
    assert (box.pop_batch(7), box.pop_batch(7), box.pop_batch(7)) == ([b"one", b"two"], [b"three"], [])
    assert box.size == 0


def test_a_frame_that_is_larger_than_all_else_leaves_alone() -> None:
    box = FrameQueue(10)
    box.put(b"x" * 50)
    box.put(b"y")
    assert box.pop_batch(7) == [b"x" * 50]


def test_an_event_that_may_be_lost_is_where_there_is_no_room() -> None:
    box = FrameQueue(10)
    assert box.offer(b"x" * 8, is_droppable=True) == TAKEN
    assert box.offer(b"y" * 3, is_droppable=True) == DROPPED
    assert box.pop_batch(100) == [b"x" * 8]


def test_one_that_must_not_be_lost_takes_the_room_of_those_that_may() -> None:
    box = FrameQueue(10)
    for frame, is_droppable in ((b"aaa", True), (b"bbb", False), (b"ccc", True)):
        box.offer(frame, is_droppable=is_droppable)
    assert box.offer(b"dddd", is_droppable=False) == EnqueueResult(is_full=False, lost=2)
    assert box.pop_batch(100) == [b"bbb", b"dddd"]


def test_where_only_such_wait_that_must_not_be_lost_the_peer_is_too_slow() -> None:
    box = FrameQueue(10)
    box.put(b"x" * 9)
    assert box.offer(b"yy", is_droppable=False) == FULL


def test_any_single_frame_finds_room_in_an_empty_one() -> None:
    assert FrameQueue(10).offer(b"x" * 50, is_droppable=True) == TAKEN


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=200), st.integers(1, 30), st.integers(1, 40))
def test_nothing_that_must_not_be_lost_is_and_the_books_are_right(
    offers: list[tuple[int, bool]], limit: int, take: int
) -> None:
    box = FrameQueue(limit)
    expected, left, lost, dropped = [], [], 0, 0
    for number, (size, is_droppable) in enumerate(offers):
        frame = bytes([number]) * size
        offer = box.offer(frame, is_droppable=is_droppable)
        lost += offer.lost
        dropped += is_droppable
        if not is_droppable and not offer.is_full:
            expected.append(frame)
        assert box.size <= max(limit, 9)
        if number % 3 == 2:
            left += box.pop_batch(take)
    left += box.pop_batch(10**6)
    assert [frame for frame in left if frame in expected] == expected
    assert len(left) + lost == dropped + len(expected), "each was sent or is counted"
    assert (box.size, len(box)) == (0, 0)
    assert not box.offer(b"z" * 99, is_droppable=False).is_full, "nothing is held against it any more"
