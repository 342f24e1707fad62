"""Events as lines of a terminal."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from commands.event_lines import EventFormatter, fill_lines, shorten
from tests.doors.envelopes import event, text
from wire.events import EventChannel
from wire.messages import EventEnvelope

AT = time.strftime("%H:%M:%S", time.localtime(0))


def lines_of(*events: EventEnvelope, width: int = 80) -> list[str]:
    lines = EventFormatter(width, is_coloured=False)
    return [*lines.feed(events), *lines.flush()]


def test_a_line_has_time_session_kind_and_the_essential() -> None:
    done = event("done", {"reason": "completed"})
    assert EventFormatter(80, is_coloured=False).feed([done]) == [f"{AT} ada            done           completed"]
    assert EventFormatter(120, is_coloured=False).feed([done]) == [
        f"{AT} ada                      done                completed"
    ]


def test_pieces_of_text_become_lines_that_fill_the_terminal() -> None:
    words = "one two three four five six seven eight nine ten"
    found = lines_of(*(text(word) for word in re.split(r"(?<= )", words)))
    assert found == [
        f"{AT} ada            text           one two three four five six seven eight",
        f"{AT} ada            text           nine ten",
    ]


def test_a_piece_is_shown_when_its_line_is_full_not_before() -> None:
    lines = EventFormatter(80, is_coloured=False)
    assert lines.feed([text("a b ")]) == []
    assert len(lines.feed([text("c\n")])) == 1
    assert lines.flush() == []


def test_texts_of_different_sessions_are_gathered_apart() -> None:
    found = lines_of(text("a1 "), text("b1 ", session="bob"), text("a2"), text("b2", session="bob"))
    assert [line.split()[1] for line in found] == ["ada", "bob"]
    assert [line.split()[-2:] for line in found] == [["a1", "a2"], ["b1", "b2"]]


def test_what_else_happens_in_a_session_ends_its_line_first() -> None:
    found = lines_of(
        text("before"), event("tool:start", {"call": {"name": "exec"}}), text("after"), event("done", {}), text("next")
    )
    assert [line.split()[-1] for line in found] == ["before", "exec", "after", "done", "next"]


def test_reasoning_and_answer_and_another_runs_text_never_share_a_line() -> None:
    thought = event("think_chunk", {"delta": "hm"})
    found = lines_of(thought, text("yes"), text("no", run_id="r2"))
    assert [line.split()[-2:] for line in found] == [["think", "hm"], ["text", "yes"], ["text", "no"]]


def test_a_snapshot_continues_the_line_of_the_pieces_before_it() -> None:
    assert lines_of(text("a "), event("text_snapshot", {"text": "b"}), text(" c"))[0].endswith("a b c")


def test_a_long_session_key_keeps_its_end_and_a_long_essential_its_beginning() -> None:
    told = EventFormatter(80, is_coloured=False).feed(
        [event("state_changed", {"reason": "x" * 200}, session="agent:main:telegram:group:-100")]
    )
    assert told[0].split()[1] == "…am:group:-100"
    assert (len(told[0]), told[0][-1]) == (80, "…")


def test_a_command_to_type_is_never_cut() -> None:
    asks = event("permission_required", {"call": {"id": "c" * 200, "name": "exec"}}, channel=EventChannel.CONTROL)
    assert EventFormatter(80, is_coloured=False).feed([asks])[1].endswith(f" pool approve -s ada {'c' * 200}")


def test_a_kind_that_is_too_long_for_its_column_takes_the_room_of_the_essential() -> None:
    asks = event("permission_required", {"call": {"id": "c1", "name": "exec", "input_preview": "x" * 200}})
    assert len(EventFormatter(80, is_coloured=False).feed([asks])[0]) == 80


def test_an_event_of_no_session_says_so() -> None:
    assert EventFormatter(80, is_coloured=False).feed([event("worker_spawned", {}, session="")])[0].split()[1] == "-"


def test_colours_are_there_only_where_they_are_wanted() -> None:
    events = [text("a\n"), event("error", {"message": "m"}, channel=EventChannel.MONITOR)]
    assert "\x1b[31m" in EventFormatter(80, is_coloured=True).feed(events)[1]
    assert "\x1b" not in "".join(EventFormatter(80, is_coloured=False).feed(events))


def test_it_follows_the_width_of_the_terminal() -> None:
    lines = EventFormatter(80, is_coloured=False)
    lines.set_width(120)
    assert len(lines.feed([event("x", {"a": "b" * 200})])[0]) == 120


@given(st.lists(st.text(), max_size=8), st.integers(1, 40))
def test_no_line_is_too_wide_and_no_visible_character_is_lost(pieces: list[str], width: int) -> None:
    lines: list[str] = []
    rest = ""
    for piece in pieces:
        full, rest = fill_lines(rest + piece, width)
        lines += full
    told = "".join([*lines, rest]).replace(" ", "")
    said = "".join(pieces).replace(" ", "").replace("\n", "")
    blank = {ord(ch): None for ch in told + said if ch.isspace()}
    assert told.translate(blank) == said.translate(blank)
    assert all(cell_len(line) <= max(width, 2) for line in [*lines, rest])


@pytest.mark.parametrize(("keep_end", "shown"), [(False, "日本…"), (True, "…の山")])
def test_wide_characters_are_counted_as_wide(keep_end: bool, shown: str) -> None:  # noqa: FBT001  # a column of the table
    assert shorten("日本の山", 5, keep_end=keep_end) == shown
