"""Where an answer ends that comes in pieces."""

from hypothesis import example, given
from hypothesis import strategies as st

from doors.openai.answer_checks import StopFilter, cut_at_stop

WORDS = st.text("ab", max_size=12)


@example(pieces=["ab", "a"], stops=["b", "aba"])  # while one is whole, another that begins before it may become so
@given(pieces=st.lists(WORDS), stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=4))
def test_however_it_is_cut_the_text_ends_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    ends = [at for stop in stops if (at := whole.find(stop)) >= 0]
    cutter = StopFilter(stops)
    shown = [cutter.push(piece) for piece in pieces]
    assert "".join(shown) + cutter.end() == whole[: min(ends, default=len(whole))] == cut_at_stop(stops, whole)


def test_what_cannot_become_a_stop_is_shown_at_once() -> None:
    cutter = StopFilter(["END"])
    assert [cutter.push(piece) for piece in ("one E", "x", "two EN", "D three", "four")] == [
        "one ",
        "Ex",
        "two ",
        "",
        "",
    ]
    assert cutter.end() == ""
