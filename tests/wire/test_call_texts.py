"""A tool call in a few words, whatever its agent says of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.messages import CallDetails, ToolCallView
from wire.run_view import describe_call, describe_end, describe_error


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
