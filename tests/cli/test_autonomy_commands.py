"""``pool heartbeat`` and ``pool cron``: what they ask a supervisor for, and what they say of the answer."""

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import cli
from doors.control.client import ControlClient
from errors import Conflict
from tests.doors.test_autonomy_views import AGENTS, BEAT, JOB, JOBS

ANSWERS: dict[str, Any] = {
    "heartbeat.status": AGENTS,
    "heartbeat.run": BEAT,
    "cron.list": JOBS,
    **{f"cron.{name}": JOB for name in ("add", "get", "remove", "run")},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Every call of a supervisor that always has the same to say."""
    calls: list[tuple[str, Any]] = []

    def call(_client: ControlClient, method: str, params: Any = None, timeout: float | None = 0.0) -> Any:
        assert (timeout is None) == (method == "heartbeat.run"), "only a beat may take its time"
        calls.append((method, params))
        return ANSWERS[method]

    monkeypatch.setattr(ControlClient, "call", call)
    monkeypatch.setattr(ControlClient, "__init__", lambda _client, _socket: None)
    monkeypatch.setattr(ControlClient, "__enter__", lambda client: client)
    monkeypatch.setattr(ControlClient, "__exit__", lambda *_exc: None)
    monkeypatch.setenv("POOL_SOCKET", "/nowhere/s")
    return calls


@pytest.mark.parametrize(
    ("words", "call", "said"),
    [
        ("heartbeat", ("heartbeat.status", None), "night-watch"),
        ("heartbeat status", ("heartbeat.status", None), "night-watch"),
        ("heartbeat run", ("heartbeat.run", {}), "main reports in 3.2 s:"),
        ("heartbeat run ops", ("heartbeat.run", {"agent": "ops"}), "main reports"),
        ("heartbeat run -s alice", ("heartbeat.run", {"session": "alice"}), "main reports"),
        ("cron", ("cron.list", None), "standup"),
        ("cron list --after a", ("cron.list", {"after": "a"}), "standup"),
        ("cron get a", ("cron.get", {"id": "a"}), "standup"),
        ("cron run a", ("cron.run", {"id": "a"}), "standup is begun; see: pool cron get standup"),
        ("cron remove a", ("cron.remove", {"id": "a"}), "standup is removed"),
        ("cron add --at 20m x", ("cron.add", {"at": "20m", "text": "x"}), "standup: cron 0 9"),
        (
            "cron add --id a --every 1h --isolated --to none --timeout 5m --agent ops --tz UTC --delete --replace x",
            (
                "cron.add",
                {
                    "id": "a",
                    "every": "1h",
                    "mode": "isolated",
                    "delivery": "none",
                    "timeout": "5m",
                    "agent": "ops",
                    "tz": "UTC",
                    "delete_after_run": True,
                    "replace": True,
                    "text": "x",
                },
            ),
            "standup: ",
        ),
        (
            "cron add --every 1h --isolated --keep-conversation x",
            ("cron.add", {"every": "1h", "mode": "isolated", "keep": True, "text": "x"}),
            "standup: ",
        ),
        (
            "cron add --cron *_*_*_*_* -s alice --keep x",
            ("cron.add", {"cron": "* * * * *", "session": "alice", "delete_after_run": False, "text": "x"}),
            "standup: ",
        ),
    ],
)
def test_a_command_asks_for_one_thing_and_says_what_came_of_it(
    asked: list[tuple[str, Any]], words: str, call: tuple[str, Any], said: str
) -> None:
    arguments = [word.replace("_", " ") for word in words.split()]
    result = CliRunner().invoke(cli.main, arguments)
    assert (result.exit_code, asked) == (0, [call]), result.output
    assert said in result.stdout
    shown = CliRunner().invoke(cli.main, [*arguments, "--json"])
    assert msgspec.json.decode(shown.stdout) == ANSWERS[call[0]]


@pytest.mark.parametrize(("outcome", "code"), [("silent", 0), ("repeated", 0), ("skipped", 1), ("failed", 1)])
def test_the_exit_code_says_whether_there_was_a_beat_that_went_well(
    asked: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch, outcome: str, code: int
) -> None:
    monkeypatch.setitem(
        ANSWERS, "heartbeat.run", {**ANSWERS["heartbeat.run"], "outcome": outcome, "skipped": "disabled"}
    )
    assert CliRunner().invoke(cli.main, ["heartbeat", "run"]).exit_code == code
    assert len(asked) == 1


def test_a_job_that_would_not_run_is_kept_with_a_warning(
    asked: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "cron.add", {**JOB, "problem": "events do not wake agent main"})
    result = CliRunner().invoke(cli.main, ["cron", "add", "--every", "1h", "x"])
    assert (result.exit_code, result.stderr) == (0, "warning: events do not wake agent main\n")
    assert len(asked) == 1


def test_a_job_that_is_refused_to_run_is_exit_code_1(
    asked: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise Conflict("job standup does not run: events do not wake agent main")

    monkeypatch.setattr(ControlClient, "call", refuse)
    result = CliRunner().invoke(cli.main, ["cron", "run", "standup"])
    assert result.exit_code == 1
    assert "does not run" in result.stderr
    assert asked == []


def test_what_is_to_be_done_can_come_from_standard_input(asked: list[tuple[str, Any]]) -> None:
    result = CliRunner().invoke(cli.main, ["cron", "add", "--every", "1h", "-"], input="tidy up\n")
    assert result.exit_code == 0, result.output
    assert asked[0][1]["text"].strip() == "tidy up"


@pytest.mark.parametrize("command", [["cron"], ["cron", "add"], ["heartbeat"]])
def test_examples_fit_a_narrow_terminal(command: list[str]) -> None:
    shown = CliRunner().invoke(cli.main, [*command, "--help"], terminal_width=80).output
    assert [line for line in shown.splitlines() if len(line) > 80] == []
