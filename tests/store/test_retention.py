import itertools

from hypothesis import given
from hypothesis import strategies as st

from store.settings import RetentionClock, expired_up_to

HOUR = 3600.0
YEAR = 365 * 24 * HOUR


class Clocks:
    """Wall and monotonic time, to be set."""

    def __init__(self, wall: float = 1e9) -> None:
        self.wall = wall
        self.steady = 5.0

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def cautious(self, latest: float | None = None) -> RetentionClock:
        return RetentionClock(lambda: self.wall, lambda: self.steady, latest)


def test_a_clock_that_runs_as_it_should_is_believed() -> None:
    clocks = Clocks()
    clock = clocks.cautious()
    for _ in range(5):
        clocks.pass_time(1000)
        assert clock.now() == clocks.wall


def test_a_clock_set_forward_is_followed_ten_times_as_fast_as_time_passes() -> None:
    clocks = Clocks()
    clock = clocks.cautious()
    before = clock.now()
    clocks.wall += HOUR
    assert clock.now() == before
    clocks.pass_time(60)
    assert clock.now() == before + 600
    clocks.pass_time(400)
    assert clock.now() == clocks.wall


def test_a_clock_set_back_is_followed_at_once_and_runs_on_from_there() -> None:
    clocks = Clocks()
    clock = clocks.cautious()
    clocks.wall -= HOUR
    assert clock.now() == clocks.wall
    clocks.pass_time(10)
    assert clock.now() == clocks.wall


def test_a_jump_between_two_lives_is_noticed_by_the_last_event() -> None:
    clocks = Clocks()
    clock = clocks.cautious(latest=clocks.wall - 10 * YEAR)
    assert clock.now() == clocks.wall - 10 * YEAR
    assert clocks.cautious(latest=clocks.wall + YEAR).now() == clocks.wall


@given(st.lists(st.tuples(st.floats(-YEAR, YEAR), st.floats(0, HOUR)), max_size=30))
def test_whatever_the_wall_clock_does_no_event_ages_more_than_tenfold(jumps: list[tuple[float, float]]) -> None:
    clocks = Clocks()
    clock = clocks.cautious()
    begun = clocks.wall
    for jump, passed in jumps:
        clocks.pass_time(passed)
        clocks.wall += jump
        assert clock.now() <= clocks.wall
    assert clock.now() - begun <= 10 * (clocks.steady - 5.0) + 1e-3


def probe(rows: list[tuple[int, float]], seq: int) -> tuple[int, float]:
    return next(row for row in rows if row[0] >= seq)


def expired(rows: list[tuple[int, float]], cutoff: float) -> int:
    return expired_up_to(rows[0][0], rows[-1][0], cutoff, lambda seq: probe(rows, seq))


gaps = st.lists(st.integers(1, 10**9), min_size=1, max_size=20)


@given(gaps, st.data())
def test_events_in_order_expire_exactly_up_to_the_cutoff(steps: list[int], data: st.DataObject) -> None:
    seqs = list(itertools.accumulate(steps))
    times = sorted(data.draw(st.lists(st.floats(0, 100), min_size=len(seqs), max_size=len(seqs))))
    rows = list(zip(seqs, times, strict=True))
    assert expired(rows, 50.0) == max((seq for seq, ts in rows if ts < 50.0), default=0)


@given(gaps, st.data())
def test_events_whose_clock_jumped_expire_only_with_a_later_one_that_is_old(
    steps: list[int], data: st.DataObject
) -> None:
    seqs = list(itertools.accumulate(steps))
    times = data.draw(st.lists(st.floats(0, 100), min_size=len(seqs), max_size=len(seqs)))
    rows = list(zip(seqs, times, strict=True))
    boundary = expired(rows, 50.0)
    assert boundary == 0 or dict(rows)[boundary] < 50.0


def test_events_from_a_clock_that_was_ahead_do_not_keep_later_ones() -> None:
    rows = [(seq, 1e12) for seq in range(1, 100)] + [(seq, float(seq)) for seq in range(100, 1000)]
    assert expired(rows, 800.0) == 799


def test_a_million_seqs_are_searched_with_some_twenty_probes() -> None:
    asked = []

    def look(seq: int) -> tuple[int, float]:
        asked.append(seq)
        return seq, float(seq)

    assert expired_up_to(1, 1_000_000, 700_000.0, look) == 699_999
    assert len(asked) <= 21
