"""What charts are made of: slots of time, round axes, lines with gaps, figures in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stress.report.charts import ChartContext, ChartSeries, amount_axis, chart, slots_of, strip, time_axis
from stress.report.text import count, duration, mebibytes
from tests.stress.report.made_up import a_second, a_violation

LENGTHS = st.integers(1, 3000)


@given(LENGTHS, st.integers(1, 300))
def test_slots_cover_every_second_once_and_are_no_more_than_asked_for(length: int, most: int) -> None:
    slots = slots_of([a_second(second) for second in range(length)], most)
    assert len(slots) <= most
    assert [slot.begin for slot in slots] == [sum(each.seconds for each in slots[:n]) for n in range(len(slots))]
    assert sum(slot.seconds for slot in slots) == length


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=500))
def test_no_request_no_fault_and_no_peak_is_lost_in_a_slot(amounts: list[int]) -> None:
    series = [a_second(n, asked=each, faults=each, waiting=each, rss=each) for n, each in enumerate(amounts)]
    slots = slots_of(series, 20)
    assert sum(slot.asked * slot.seconds for slot in slots) == pytest.approx(sum(amounts))
    assert sum(slot.faults for slot in slots) == sum(amounts)
    assert max(slot.waiting for slot in slots) == max(amounts)
    assert max(slot.rss or 0 for slot in slots) == max(amounts)


def test_where_there_was_nothing_to_measure_there_is_nothing() -> None:
    (slot,) = slots_of([a_second(0, answered=0, p50=0.0, p99=0.0, rss=0, fds=0)])
    assert (slot.p50, slot.p99, slot.rss, slot.fds) == (None, None, None, None)


@given(st.floats(0.0, 1e7))
def test_the_axis_of_time_holds_the_run_in_at_most_six_steps(seconds: float) -> None:
    axis = time_axis(seconds)
    assert axis.end >= seconds
    assert 2 <= len(axis.labels) <= 7
    assert axis.labels[0] == "0 s"


@given(st.floats(0.0, 1e12))
def test_the_axis_of_amounts_holds_the_highest_and_is_no_larger_than_need_be(highest: float) -> None:
    axis = amount_axis(highest, count)
    assert highest <= axis.end <= max(2.0, 2.2 * highest)
    assert 0.0 <= axis.share(highest) <= 1.0


def test_labels_are_round() -> None:
    assert time_axis(95).labels == ("0 s", "20 s", "40 s", "60 s", "80 s", "100 s")
    assert time_axis(3600).labels[-1] == "60 min"
    assert time_axis(11 * 3600).labels[-1] == "12 h"
    assert amount_axis(33, count).labels == ("0", "20", "40")
    assert amount_axis(0, count).labels == ("0", "1", "2")
    assert amount_axis(0.311, duration, unit=0.001).labels == ("0", "200 ms", "400 ms")
    assert amount_axis(70 * 1024 * 1024, mebibytes, unit=1024 * 1024).labels == ("0", "40 MiB", "80 MiB")


def drawn(*values: float | None, **fields: int) -> str:
    slots = slots_of([a_second(second, **fields) for second in range(len(values))])
    background = ChartContext(slots, time_axis(len(values)), ())
    return chart("A", background, amount_axis(10, count), [ChartSeries("x", "asked", "", values)], count, limit=5.0)


def test_a_line_is_parted_where_nothing_was_measured_and_one_point_alone_is_a_dot() -> None:
    assert 'd="M100 50L300 50M700 50h0"' in drawn(10.0, 10.0, None, 10.0, None)


def test_a_line_of_nothing_is_not_drawn() -> None:
    assert "<path" not in drawn(None, None)


def test_faults_are_marked_at_their_time() -> None:
    assert "fault-mark" not in drawn(1.0, 1.0)
    assert drawn(1.0, 1.0, faults=1).count("fault-mark") == 2


def test_a_broken_promise_is_marked_and_told_at_its_time_also_beyond_the_end() -> None:
    slots = slots_of([a_second(second) for second in range(10)])
    background = ChartContext(slots, time_axis(10), (a_violation(t=5.5), a_violation(t=99.0)))
    text = chart("A", background, amount_axis(1, count), [ChartSeries("x", "asked", "", (1.0,) * 10)], count)
    assert '<line x1="550.0" y1="0" x2="550.0"' in text
    assert '<line x1="1000.0" y1="0" x2="1000.0"' in text
    assert "<title>5 s: x 1, I1: request 5 has no outcome</title>" in text


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1000)), max_size=2000))
def test_a_strip_has_at_most_as_many_marks_as_can_be_told_apart(spans: list[tuple[float, float]]) -> None:
    background = ChartContext((), time_axis(100), ())
    assert strip("A", background, spans, "fault-bar").count("<rect") <= min(len(spans), 250)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((0.0, "0"), (0.00035, "350 µs"), (0.0124, "12 ms"), (0.9999, "1 s"), (1.25, "1.25 s"), (9.999, "10 s")),
        *((90.0, "90 s"), (120.0, "2 min"), (5400.0, "90 min"), (7200.0, "2 h"), (9000.0, "2.5 h")),
    ],
)
def test_durations_are_as_short_as_they_are_read(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_numbers_and_sizes_are_as_short_as_they_are_read() -> None:
    assert [count(each) for each in (0, 7, 2.5, 99.96, 12345, 12345.6)] == ["0", "7", "2.5", "100", "12,345", "12,346"]
    assert [mebibytes(each * 1024 * 1024) for each in (0, 1.5, 84.2)] == ["0 MiB", "1.5 MiB", "84 MiB"]
