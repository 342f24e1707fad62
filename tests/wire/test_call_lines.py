"""The lines of tool calls that run alone and at the same time."""

from tests.wire.terminals import Terminal, screen_of
from wire.messages import CallDetails, ToolCallView
from wire.run_view import CallLines, RunView

OK = CallDetails("completed", exit_code=0)


class Bench:
    def __init__(self) -> None:
        self.terminal = Terminal(tty=True)
        self.stage = RunView(self.terminal, self.terminal, {"COLUMNS": "80"})
        self.lines = CallLines(self.stage)

    @property
    def screen(self) -> list[str]:
        return screen_of(self.terminal.getvalue())


def call(number: int, state: str = "RUNNING") -> ToolCallView:
    return ToolCallView(f"c{number}", "exec", f'{{"command":"work {number}"}}', state, 10)


def test_the_end_of_a_call_alone_follows_its_beginning() -> None:
    bench = Bench()
    bench.stage.answer("Let me see.")
    bench.lines.start(call(1))
    bench.lines.update("so far\n")
    assert bench.screen == ["Let me see.", "· exec work 1", "  │ so far"]
    bench.lines.end(call(1, "COMPLETED"), OK)
    assert bench.screen == ["Let me see.", "· exec work 1", "  ✓ ok, code 0 (10 ms)"]


def test_of_several_calls_each_end_names_its_call() -> None:
    bench = Bench()
    bench.lines.start(call(1))
    bench.lines.start(call(2))
    bench.lines.end(call(1, "COMPLETED"), OK)
    bench.lines.error(call(2, "FAILED"), "no", None)
    bench.lines.end(call(2, "FAILED"), None)
    assert bench.screen[2:] == ["✓ exec work 1: ok, code 0 (10 ms)", "✗ exec work 2: failed (10 ms): no"]


def test_what_went_wrong_is_not_dim() -> None:
    bench = Bench()
    bench.lines.error(call(1, "DENIED"), "no", None)
    assert bench.terminal.getvalue() == "✗ exec work 1: denied (10 ms): no\n"


def test_a_text_after_a_call_begins_a_line_on_a_pipe_too() -> None:
    out = Terminal()
    stage = RunView(out, Terminal(), {})
    stage.answer("Let me see.")
    CallLines(stage).start(call(1))
    stage.answer("Done.")
    stage.close()
    assert out.getvalue() == "Let me see.\nDone.\n"
