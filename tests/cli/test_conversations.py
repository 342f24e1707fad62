"""``pool prompt`` and ``pool wait`` against fake handlers: what is sent, what is shown, how badly it ended."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from commands import prompt
from tests.cli.fake_pool import OUTCOME, Bench

NOTES = """\
? needs your approval: exec ls -la
  pool approve -s ada c1
  pool deny -s ada c1 --note "why not"
"""


def test_a_prompt_streams_its_answer_and_tells_what_it_waits_for(bench: Bench) -> None:
    result = bench.run("prompt", "-s", "ada", "-r", "reviewer", "--priority", "7", "--timeout", "2m", "may I?")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "you said: may I?\n", NOTES)
    [(method, asked)] = bench.pool.calls
    assert asked.pop("run")  # a name of its own making
    assert (method, asked) == (
        "prompt",
        {"session": "ada", "text": "may I?", "role": "reviewer", "priority": 7, "timeout": 120.0},
    )


def test_a_prompt_says_when_and_under_what_name_it_is_to_run(bench: Bench) -> None:
    bench.run("prompt", "-s", "a", "-a", "pi", "--key", "k1", "--lane", "cron", "--queue", "collect", "hi")
    asked = bench.pool.calls[0][1]
    assert [asked[name] for name in ("agent", "run", "lane", "queue")] == ["pi", "k1", "cron", "collect"]


def test_the_reasoning_is_shown_where_it_is_asked_for(bench: Bench) -> None:
    assert bench.run("prompt", "-s", "ada", "--thinking", "hello").stderr == "hm\n"


def test_a_command_to_type_finds_the_same_supervisor(bench: Bench) -> None:
    result = bench.run("prompt", "--socket", str(bench.socket), "-s", "ada", "may I?")
    assert f"pool approve --socket {bench.socket} -s ada c1\n" in result.stderr


def test_a_prompt_can_come_from_stdin(bench: Bench) -> None:
    assert bench.run("prompt", "-s", "ada", "-", stdin="from a pipe").stdout == "you said: from a pipe\n"


def test_a_prompt_as_json_is_one_event_a_line_and_the_outcome_last(bench: Bench) -> None:
    lines = [msgspec.json.decode(line) for line in bench.run("prompt", "-s", "a", "--json", "hi").stdout.splitlines()]
    assert [line.get("seq") for line in lines] == [1, 2, 3, 4, None]
    assert lines[-1] == {"outcome": OUTCOME}


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("full", 4, "pool: the waiting list is full (try again in 2.0 s)\n"),
        ("late", 4, "pool: no worker became free\n"),
        ("defect", 1, "pool: the supervisor failed to run prompt: KeyError: 'oops'\n"),
    ],
)
def test_a_prompt_that_fails_says_why_and_how_badly(bench: Bench, text: str, code: int, line: str) -> None:
    result = bench.run("prompt", "-s", "a", text)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", line)


def test_a_failed_prompt_as_json_ends_with_the_error(bench: Bench) -> None:
    result = bench.run("prompt", "-s", "a", "--json", "full")
    assert result.exit_code == 4
    assert msgspec.json.decode(result.stdout)["error"]["code"] == "saturated"


def test_a_run_that_failed_says_so_after_its_text(bench: Bench) -> None:
    result = bench.run("prompt", "-s", "a", "bad")
    assert (result.exit_code, result.stdout) == (1, "you said: bad\n")
    assert result.stderr.endswith("pool: the worker w1 exited\n")


def test_when_the_supervisor_goes_away_a_prompt_tells_how_to_look_for_its_run(bench: Bench) -> None:
    result = bench.run("prompt", "-s", "ada", "--key", "k1", "gone")
    assert result.exit_code == 1
    assert result.stderr.endswith("get its outcome with: pool wait -s ada k1\n")
    result = bench.run("prompt", "-s", "ada", "--key", "k1", "--json", "gone")
    error = msgspec.json.decode(result.stdout.splitlines()[-1])["error"]
    assert (error["code"], error["data"]) == ("interrupted", {"run_id": "k1", "session": "ada"})


# --- runs that nobody follows -----------------------------------------------------------------------------------------


def test_a_detached_prompt_prints_its_runs_id_and_nothing_else(bench: Bench) -> None:
    result = bench.run("prompt", "-s", "ada", "--key", "k1", "--detach", "hi")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "k1\n", "")
    assert bench.pool.calls == [("agent", {"session": "ada", "run": "k1", "text": "hi"})]


def test_a_detached_prompt_as_json_is_all_that_is_said_of_its_acceptance(bench: Bench) -> None:
    accepted = bench.json("prompt", "-s", "ada", "--key", "k1", "--detach", "hi")
    assert accepted == {"run_id": "k1", "session": "ada", "status": "accepted", "accepted_at": 1.0}


def test_waiting_prints_the_answer_of_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "time", SimpleNamespace(monotonic=lambda: 5.0))
    result = bench.run("wait", "r1", "-s", "ada", "--timeout", "30s")
    assert (result.exit_code, result.stdout) == (0, "done so\n")
    [(method, asked)] = bench.pool.calls
    assert (method, asked) == ("agent.wait", {"run_id": "r1", "session": "ada", "timeout_ms": 30_000})
    assert bench.json("wait", "r1") == OUTCOME


def test_waiting_without_an_end_asks_again_until_the_run_has_ended(bench: Bench) -> None:
    bench.pool.waits = ["timeout", "timeout"]
    assert bench.run("wait", "r1").stdout == "done so\n"
    assert len(bench.pool.calls) == 3


def test_a_wait_that_takes_too_long_is_4_and_says_that_the_run_goes_on(bench: Bench) -> None:
    bench.pool.waits = ["timeout"]
    result = bench.run("wait", "r1", "--timeout", "0")
    assert (result.exit_code, result.stderr) == (4, "pool: the run r1 has not ended yet; it goes on\n")


def test_a_wait_that_the_supervisors_end_cuts_short_says_that_the_run_is_kept_and_how_to_wait_on(bench: Bench) -> None:
    bench.pool.waits = ["cut short"]
    result = bench.run("wait", "r1", "-s", "ada", "--socket", str(bench.socket))
    assert result.exit_code == 1
    assert "a run that still waits is kept and goes on when the supervisor is back" in result.stderr
    assert result.stderr.endswith(f"pool wait --socket {bench.socket} -s ada r1\n")


@pytest.mark.parametrize(("options", "printed", "mode"), [([], "done so\n", "sync"), (["--detach"], "d1\n", "async")])
def test_a_task_is_delegated(bench: Bench, options: list[str], printed: str, mode: str) -> None:
    result = bench.run("delegate", "-s", "ada", "-a", "pi", *options, "look")
    assert (result.exit_code, result.stdout) == (0, printed)
    expected: Any = {"session": "ada", "agent": "pi", "task": "look", "mode": mode}
    assert bench.pool.calls == [("delegate", expected)]
