"""The answer and what happens beside it, on a terminal, on two, and on pipes."""

import os
import pty
from collections.abc import Callable

import pytest

from tests.wire.terminals import Terminal, screen_of
from wire.run_view import RunView, tail_lines
from wire.terminal import BOLD


class Bench:
    """A stage; ``screen`` is what both streams have written, in order, where both are one terminal."""

    def __init__(self, *, tty: bool = True, columns: int = 40, **env: str) -> None:
        self.out, self.err = Terminal(tty=tty), Terminal(tty=tty)
        self.both = Terminal(tty=tty)
        if tty:
            self.out = self.err = self.both
        self.stage = RunView(self.out, self.err, {"COLUMNS": str(columns), **env})

    @property
    def screen(self) -> list[str]:
        return screen_of(self.both.getvalue())


def test_a_line_beside_the_answer_never_goes_into_the_answers_line() -> None:
    bench = Bench()
    bench.stage.answer("so far")
    bench.stage.line("a tool")
    bench.stage.answer("and more")
    bench.stage.close()
    assert bench.screen == ["so far", "a tool", "and more"]
    assert bench.both.getvalue().endswith("and more\n")


def test_on_pipes_the_answer_alone_goes_out_and_the_rest_beside_it_without_styles() -> None:
    bench = Bench(tty=False)
    bench.stage.answer("so far\x1b[2J")
    bench.stage.line("a \x1b[2J tool")
    bench.stage.tail("never shown")
    bench.stage.answer(", and more")
    bench.stage.close()
    assert bench.out.getvalue() == "so far\x1b[2J, and more\n"
    assert bench.err.getvalue() == "a \\x1b[2J tool\n"


def test_an_answer_shows_on_a_terminal_what_reorders_it_and_goes_into_a_pipe_as_it_is() -> None:
    for tty, shown in ((True, "rm \\u202etxt.\n"), (False, "rm \u202etxt.\n")):
        bench = Bench(tty=tty)
        bench.stage.answer("rm \u202etxt.")
        bench.stage.close()
        assert bench.out.getvalue() == shown


def test_what_a_tool_says_is_drawn_in_place_and_gone_with_the_next_line() -> None:
    bench = Bench()
    bench.stage.line("begins")
    for count in range(1, 9):
        bench.stage.tail("".join(f"line {number}\n" for number in range(count)))
    assert bench.screen == ["begins", "  │ line 4", "  │ line 5", "  │ line 6", "  │ line 7"]
    bench.stage.tail("")
    assert len(bench.screen) == 5
    bench.stage.line("ends")
    assert bench.screen == ["begins", "ends"]
    bench.stage.tail("more\n")
    bench.stage.answer("the answer")
    assert bench.screen == ["begins", "ends", "the answer"]
    bench.stage.tail("last\n")
    bench.stage.close()
    assert bench.screen == ["begins", "ends", "the answer"]


def test_a_tail_is_drawn_in_one_piece() -> None:
    bench = Bench()
    bench.stage.tail("a\nb\n")
    before = bench.err.flushes
    bench.stage.tail("b\nc\n")
    assert bench.err.flushes == before + 1


def test_where_nothing_can_be_drawn_over_nothing_is_drawn() -> None:
    bench = Bench(TERM="dumb")
    bench.stage.tail("a line\n")
    bench.stage.line("a note")
    assert bench.both.getvalue() == "a note\n"


def test_without_colours_it_is_drawn_all_the_same() -> None:
    bench = Bench(NO_COLOR="1")
    bench.stage.tail("a\n")
    bench.stage.line("over")
    assert bench.both.getvalue() == "  │ a\n\x1b[1A\x1b[Jover\n"


def test_a_terminal_that_does_not_know_its_width_has_the_usual_one() -> None:
    theirs, ours = pty.openpty()  # 0 x 0 until somebody says otherwise
    with os.fdopen(theirs, "rb", buffering=0) as shown, os.fdopen(ours, "w", encoding="utf-8") as terminal:
        assert os.get_terminal_size(terminal.fileno()).columns == 0
        RunView(terminal, terminal, {"COLUMNS": "0"}).line("w" * 100)
        assert shown.read(1000).count(b"w") == 78


@pytest.mark.parametrize("columns", [1, 2, 11, 12, 13, 20, 34, 80])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    bench = Bench(columns=columns)
    bench.stage.line("a note that is longer than some terminals are wide", ": with an end that counts")
    bench.stage.tail("a line of the tool that is longer than some terminals are wide, in 日本語 too\n")
    assert all(len(line) < columns for line in bench.screen)
    assert bench.screen or columns < 2


def test_of_a_line_that_is_too_long_the_end_stays() -> None:
    bench = Bench(columns=31)
    bench.stage.line("a call with a long input", ": ok (1.2 s)")
    assert bench.screen == ["a call with a lon…: ok (1.2 s)"]


def test_what_is_to_be_copied_is_never_cut() -> None:
    bench = Bench(columns=20)
    bench.stage.line("pool approve " + "x" * 100, whole=True, style=BOLD)
    assert bench.screen == ["pool approve " + "x" * 100]


def test_a_running_text_beside_the_answer_ends_before_the_next_line() -> None:
    bench = Bench()
    for piece in ("hm", ", \x1b[2Jwell"):
        bench.stage.dim(piece)
    bench.stage.answer("yes")
    bench.stage.close()
    assert bench.screen == ["hm, [2Jwell", "yes"]


def test_only_the_latest_note_is_the_subject() -> None:
    stage = Bench().stage
    stage.line("a", about="c1")
    stage.tail("x\n")
    assert stage.subject == "c1"
    changes: list[Callable[[], None]] = [
        lambda: stage.answer("x"),
        lambda: stage.line("b"),
        lambda: stage.dim("hm"),
    ]
    for change in changes:
        stage.line("a", about="c1")
        change()
        assert stage.subject is None


def test_the_tail_of_a_line_that_draws_over_itself_is_what_it_was_last() -> None:
    assert tail_lines("10%\r20%\r100%\r\n\n\tdone\x1b[2J \n", 40) == ["  │ 100%", "  │     done\\x1b[2J"]
    assert tail_lines("x", 5) == []
