"""``pool prompt``, ``wait`` and ``delegate`` against fake handlers: what is sent, what is shown, the exit code."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from commands import prompt
from errors import NoSupervisor, PoolClosed, PoolError, UsageError
from tests.commands.fake_pool import OUTCOME, Bench

ASKS = '? needs your approval: exec ls -la\n  pool approve{0} -s ada c1\n  pool deny{0} -s ada c1 --note "why not"\n'
FULL = "pool: the waiting list is full (try again in 2.0 s)\n"
DEFECT = "pool: the supervisor failed to run prompt: KeyError: 'oops'\n"


@pytest.mark.parametrize(
    ("options", "text", "code", "stdout", "stderr"),
    [
        ("", "may I?", 0, "you said: may I?\n", ASKS.format("")),
        ("", "-", 0, "you said: from a pipe\n", ""),
        ("--thinking", "hello", 0, "you said: hello\n", "hm\n"),
        ("", "full", 4, "", FULL),
        ("", "late", 4, "", "pool: no worker became free\n"),
        ("", "defect", 1, "", DEFECT),
        ("", "bad", 1, "you said: bad\n", "pool: the worker w1 exited\n"),
        ("--detach", "hi", 0, "k1\n", ""),
    ],
)
def test_a_prompt_streams_its_answer_and_its_end_is_the_exit_code(  # noqa: PLR0917  # columns of the table
    bench: Bench, options: str, text: str, code: int, stdout: str, stderr: str
) -> None:
    result = bench.run("prompt", "-s", "ada", "--key", "k1", *options.split(), text, stdin="from a pipe")
    assert (result.exit_code, result.stdout, result.stderr) == (code, stdout, stderr)


@pytest.mark.parametrize(
    ("options", "call"),
    [
        (
            "-r reviewer --priority 7 --timeout 2m",
            ("prompt", {"role": "reviewer", "priority": 7, "timeout": 120.0}),
        ),
        ("-a pi --lane cron --queue collect", ("prompt", {"agent": "pi", "lane": "cron", "queue": "collect"})),
        ("--detach", ("agent", {})),
    ],
)
def test_a_prompt_says_when_and_under_what_name_it_is_to_run(
    bench: Bench, options: str, call: tuple[str, dict[str, Any]]
) -> None:
    bench.run("prompt", "-s", "ada", "--key", "k1", *options.split(), "hi")
    assert bench.pool.calls == [(call[0], {"session": "ada", "run": "k1", "text": "hi", **call[1]})]


def test_a_command_to_type_finds_the_same_supervisor(bench: Bench) -> None:
    result = bench.run("prompt", "--socket", str(bench.socket), "-s", "ada", "may I?")
    assert result.stderr == ASKS.format(f" --socket {bench.socket}")
    assert bench.pool.calls[0][1]["run"], "a name of its own making"


def test_a_prompt_as_json_is_one_event_a_line_and_the_outcome_or_error_last(bench: Bench) -> None:
    def lines(*args: str) -> list[Any]:
        result = bench.run("prompt", "-s", "ada", "--key", "k1", "--json", *args)
        return [result.exit_code, *map(msgspec.json.decode, result.stdout.splitlines())]

    code, *events, outcome = lines("hi")
    assert (code, [event["seq"] for event in events], outcome) == (0, [1, 2, 3, 4], {"outcome": OUTCOME})
    code, refusal = lines("full")
    assert (code, refusal["error"]["code"]) == (4, "saturated")
    gone = lines("gone")[-1]["error"]
    assert (gone["code"], gone["data"]) == ("interrupted", {"run_id": "k1", "session": "ada"})
    accepted = {"run_id": "k1", "session": "ada", "status": "accepted", "accepted_at": 1.0}
    assert bench.json("prompt", "-s", "ada", "--key", "k1", "--detach", "hi") == accepted


# --- runs that nobody follows -----------------------------------------------------------------------------------------


def test_waiting_prints_the_answer_of_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "time", SimpleNamespace(monotonic=lambda: 5.0))
    result = bench.run("wait", "r1", "-s", "ada", "--timeout", "30s")
    assert (result.exit_code, result.stdout) == (0, "done so\n")
    assert bench.pool.calls == [("agent.wait", {"run_id": "r1", "session": "ada", "timeout_ms": 30_000})]
    assert bench.json("wait", "r1") == OUTCOME


KEPT = "a run that still waits is kept and goes on when the supervisor is back"
STEP = {"run_id": "r1", "timeout_ms": 600_000}
"""Of a long wait each request is a short one."""


@pytest.mark.parametrize(
    ("answers", "options", "code", "words", "calls"),
    [
        (["timeout", "timeout"], "", 0, "", [STEP] * 3),
        ([], "--timeout 100000s", 0, "", [STEP]),
        (["timeout"], "--timeout 0", 4, "the run r1 has not ended yet; it goes on\n", [{**STEP, "timeout_ms": 0}]),
        (PoolClosed("stopped", cut_short=True), "-s ada", 1, KEPT, [{**STEP, "session": "ada"}]),
        (NoSupervisor("gone"), "-s ada", 1, KEPT, [{**STEP, "session": "ada"}]),
        (UsageError("no run r1"), "", 2, "pool: no run r1\n", [STEP]),
    ],
)
def test_a_wait_asks_again_until_the_run_has_ended_or_says_what_becomes_of_it(  # noqa: PLR0917  # columns of the table
    bench: Bench, answers: Any, options: str, code: int, words: str, calls: list[Any]
) -> None:
    if isinstance(answers, PoolError):
        bench.pool.fixed = {"agent.wait": answers}
    else:
        bench.pool.waits = list(answers)
    result = bench.run("wait", "r1", *options.split(), "--socket", str(bench.socket))
    assert (result.exit_code, result.stdout, words in result.stderr) == (code, "" if code else "done so\n", True)
    assert [asked for _, asked in bench.pool.calls] == calls
    look = f"pool wait --socket {bench.socket} -s ada r1\n"
    assert result.stderr.endswith(look) == (words == KEPT), "how to wait on"


@pytest.mark.parametrize(("options", "printed", "mode"), [([], "done so\n", "sync"), (["--detach"], "d1\n", "async")])
def test_a_task_is_delegated(bench: Bench, options: list[str], printed: str, mode: str) -> None:
    result = bench.run("delegate", "-s", "ada", "-a", "pi", *options, "look")
    assert (result.exit_code, result.stdout) == (0, printed)
    expected: Any = {"session": "ada", "agent": "pi", "task": "look", "mode": mode}
    assert bench.pool.calls == [("delegate", expected)]
