"""A run on a terminal, on two, and on pipes: the answer, its tool calls, and the words for them."""

import os
import pty

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.terminals import Terminal, screen_of
from wire.messages import CallDetails, ToolCallView
from wire.run_view import CallLines, RunView, describe_call, describe_end, describe_error, tail_lines
from wire.terminal import BOLD


class Bench:
    """A view; ``screen`` is what both streams have written, in order, where both are one terminal."""

    def __init__(self, *, tty: bool = True, columns: int = 40, **env: str) -> None:
        self.out, self.err = Terminal(tty=tty), Terminal(tty=tty)
        self.both = Terminal(tty=tty)
        if tty:
            self.out = self.err = self.both
        self.view = RunView(self.out, self.err, {"COLUMNS": str(columns), **env})
        self.lines = CallLines(self.view)

    @property
    def screen(self) -> list[str]:
        return screen_of(self.both.getvalue())


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_line_beside_the_answer_never_goes_into_the_answers_line(bench: Bench) -> None:
    bench.view.answer("so far")
    bench.view.line("a tool")
    bench.view.answer("and more")
    bench.view.close()
    assert bench.screen == ["so far", "a tool", "and more"]
    assert bench.both.getvalue().endswith("and more\n")


def test_on_pipes_the_answer_alone_goes_out_and_the_rest_beside_it_without_styles() -> None:
    bench = Bench(tty=False)
    bench.view.answer("so far\x1b[2J")
    bench.view.line("a \x1b[2J tool")
    bench.view.tail("never shown")
    bench.view.answer(", and more")
    bench.view.close()
    assert bench.out.getvalue() == "so far\x1b[2J, and more\n"
    assert bench.err.getvalue() == "a \\x1b[2J tool\n"


def test_an_answer_shows_on_a_terminal_what_reorders_it_and_goes_into_a_pipe_as_it_is() -> None:
    for tty, shown in ((True, "rm \\u202etxt.\n"), (False, "rm \u202etxt.\n")):
        bench = Bench(tty=tty)
        bench.view.answer("rm \u202etxt.")
        bench.view.close()
        assert bench.out.getvalue() == shown


def test_what_a_tool_says_is_drawn_in_place_and_gone_with_the_next_line(bench: Bench) -> None:
    bench.view.line("begins")
    for count in range(1, 9):
        bench.view.tail("".join(f"line {number}\n" for number in range(count)))
    assert bench.screen == ["begins", "  │ line 4", "  │ line 5", "  │ line 6", "  │ line 7"]
    bench.view.tail("")
    assert len(bench.screen) == 5
    bench.view.line("ends")
    assert bench.screen == ["begins", "ends"]
    bench.view.tail("more\n")
    bench.view.answer("the answer")
    assert bench.screen == ["begins", "ends", "the answer"]
    bench.view.tail("last\n")
    bench.view.close()
    assert bench.screen == ["begins", "ends", "the answer"]


def test_a_tail_is_drawn_in_one_piece(bench: Bench) -> None:
    bench.view.tail("a\nb\n")
    before = bench.err.flushes
    bench.view.tail("b\nc\n")
    assert bench.err.flushes == before + 1


def test_where_nothing_can_be_drawn_over_nothing_is_drawn() -> None:
    bench = Bench(TERM="dumb")
    bench.view.tail("a line\n")
    bench.view.line("a note")
    assert bench.both.getvalue() == "a note\n"


def test_without_colours_it_is_drawn_all_the_same() -> None:
    bench = Bench(NO_COLOR="1")
    bench.view.tail("a\n")
    bench.view.line("over")
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
    bench.view.line("a note that is longer than some terminals are wide", ": with an end that counts")
    bench.view.tail("a line of the tool that is longer than some terminals are wide, in 日本語 too\n")
    assert all(len(line) < columns for line in bench.screen)
    assert bench.screen or columns < 2


def test_of_a_line_that_is_too_long_the_end_stays() -> None:
    bench = Bench(columns=31)
    bench.view.line("a call with a long input", ": ok (1.2 s)")
    assert bench.screen == ["a call with a lon…: ok (1.2 s)"]


def test_what_is_to_be_copied_is_never_cut() -> None:
    bench = Bench(columns=20)
    bench.view.line("pool approve " + "x" * 100, whole=True, style=BOLD)
    assert bench.screen == ["pool approve " + "x" * 100]


def test_a_running_text_beside_the_answer_ends_before_the_next_line(bench: Bench) -> None:
    for piece in ("hm", ", \x1b[2Jwell"):
        bench.view.dim(piece)
    bench.view.answer("yes")
    bench.view.close()
    assert bench.screen == ["hm, [2Jwell", "yes"]


def test_only_the_latest_note_is_the_subject(bench: Bench) -> None:
    view = bench.view
    for show, subject in ((view.tail, "c1"), (view.answer, None), (view.line, None), (view.dim, None)):
        view.line("a", about="c1")
        show("x\n")
        assert view.subject == subject


def test_the_tail_of_a_line_that_draws_over_itself_is_what_it_was_last() -> None:
    assert tail_lines("10%\r20%\r100%\r\n\n\tdone\x1b[2J \n", 40) == ["  │ 100%", "  │     done\\x1b[2J"]
    assert tail_lines("x", 5) == []


OK = CallDetails("completed", exit_code=0)


def numbered(number: int, state: str = "RUNNING") -> ToolCallView:
    return ToolCallView(f"c{number}", "exec", f'{{"command":"work {number}"}}', state, 10)


def test_the_end_of_a_call_alone_follows_its_beginning() -> None:
    bench = Bench(columns=80)
    bench.view.answer("Let me see.")
    bench.lines.start(numbered(1))
    bench.lines.update("so far\n")
    assert bench.screen == ["Let me see.", "· exec work 1", "  │ so far"]
    bench.lines.end(numbered(1, "COMPLETED"), OK)
    assert bench.screen == ["Let me see.", "· exec work 1", "  ✓ ok, code 0 (10 ms)"]


def test_of_several_calls_each_end_names_its_call() -> None:
    bench = Bench(columns=80)
    bench.lines.start(numbered(1))
    bench.lines.start(numbered(2))
    bench.lines.end(numbered(1, "COMPLETED"), OK)
    bench.lines.error(numbered(2, "FAILED"), "no", None)
    bench.lines.end(numbered(2, "FAILED"), None)
    assert bench.screen[2:] == ["✓ exec work 1: ok, code 0 (10 ms)", "✗ exec work 2: failed (10 ms): no"]


def test_what_went_wrong_is_not_dim() -> None:
    bench = Bench(columns=80)
    bench.lines.error(numbered(1, "DENIED"), "no", None)
    assert bench.both.getvalue() == "✗ exec work 1: denied (10 ms): no\n"


def test_a_text_after_a_call_begins_a_line_on_a_pipe_too() -> None:
    bench = Bench(tty=False)
    bench.view.answer("Let me see.")
    bench.lines.start(numbered(1))
    bench.view.answer("Done.")
    bench.view.close()
    assert bench.out.getvalue() == "Let me see.\nDone.\n"


@pytest.mark.parametrize(
    ("name", "preview", "words"),
    [
        ("exec", '{"command":"ls -la"}', "exec ls -la"),
        ("exec", '{"command":"ls","background":true,"env":{"A":"b"}}', 'exec ls background=true env={"A":"b"}'),
        ("process", '{"action":"poll","session_id":"calm-fox"}', "process poll session_id=calm-fox"),
        ("page", '{"number":3}', "page number=3"),
        ("ls", "{}", "ls"),
        ("bash", "rm -rf", "bash rm -rf"),
        ("bash", '["a"]', 'bash ["a"]'),
        ("write", '{"path":"a.py","content":"line 1\\nli', "write a.py…"),
        ("exec", '{"command":"echo \\"one\\ntwo\\u00', 'exec echo "one two…'),
        ("exec", '{"command":"make test' + " " * 150, "exec make test…"),
        ("exec", '{"command":12', 'exec {"command":12'),
        ("exec", None, "exec"),
        (None, "[" * 5000, "None " + "[" * 5000),
        ("exec", '{"command":"\\u001b[2J"}', "exec \\x1b[2J"),
    ],
)
def test_a_call_is_its_name_and_what_matters_of_its_input(name: str, preview: str, words: str) -> None:
    assert describe_call(name, preview) == words


@given(st.text(), st.text())
def test_no_call_controls_the_terminal(name: str, preview: str) -> None:
    assert describe_call(name, preview).isprintable()


def call(name: str = "exec", state: str = "COMPLETED", duration_ms: float | None = 1200) -> ToolCallView:
    return ToolCallView("c1", name, "{}", state, duration_ms)


@pytest.mark.parametrize(
    ("details", "line"),
    [
        (None, "✓ ok (1.2 s)"),
        (CallDetails("completed", exit_code=0), "✓ ok, code 0 (1.2 s)"),
        (CallDetails("completed", exit_code=2), "! ended with code 2 (1.2 s)"),
        (CallDetails("running", "calm-fox"), "… still running in the background as calm-fox (1.2 s)"),
        (CallDetails("failed", "calm-fox", exit_signal="SIG\x1b"), "✗ failed, signal SIG\\x1b (1.2 s)"),
    ],
)
def test_the_end_of_a_call_is_told_in_a_line(details: CallDetails | None, line: str) -> None:
    assert " ".join(describe_end(call(), details)) == line


def test_a_poll_tells_of_the_command_that_it_was_about() -> None:
    assert describe_end(call("process"), CallDetails("running", "calm-fox")).text == "calm-fox still runs (1.2 s)"


@pytest.mark.parametrize(
    ("state", "error", "details", "line"),
    [
        ("FAILED", "no such file\nlook elsewhere", None, "failed (1.2 s): no such file"),
        ("FAILED", "", None, "failed (1.2 s)"),
        ("DENIED", "The call of exec was denied: a rule.", None, "denied (1.2 s): a rule."),
        (
            "FAILED",
            "begun\nx: not found\n(Command exited with code 127)",
            CallDetails("failed", exit_code=127),
            "failed, code 127 (1.2 s): x: not found",
        ),
        ("FAILED", "(Command timed out after 1 s)", CallDetails("failed", timed_out=True), "failed, timed out (1.2 s)"),
        ("FAILED", "a\x1b[2J\nb", None, "failed (1.2 s): a\\x1b[2J"),
    ],
)
def test_a_failure_is_told_with_its_reason(state: str, error: str, details: CallDetails | None, line: str) -> None:
    assert describe_error(call(state=state), error, details) == ("✗", line)
