"""The command line: help, exit codes, orders and listings, with a control server of fake handlers behind the socket."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

import cli
from tests.cli.fake_pool import EXPLANATION, HISTORY, SESSION, Bench
from tests.doors.test_tables import CONVERSATIONS, DOCUMENT

COMMANDS = ["run", "stop", "pause", "resume", "drain", "reload", "prompt", "wait", "steer", "abort", "approve", "deny"]
COMMANDS += ["delegate", "attach", "sessions", "status", "workers", "waiting", "events", "explain", "route", "worker"]
COMMANDS += ["approvals", "top", "heartbeat", "cron", "config", "doctor", "demo", "stress"]

# --- help -----------------------------------------------------------------------------------------------------------


def test_the_help_lists_every_command_under_a_heading(alone: CliRunner) -> None:
    result = alone.invoke(cli.main, ["--help"])
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ") and line.split()]
    assert set(COMMANDS) <= set(listed)
    assert set(cli.main.list_commands(click.Context(cli.main))) == set(COMMANDS)
    for heading in (
        "Supervisor:",
        "Sessions:",
        "Automation:",
        "Observation:",
        "This machine:",
        "Exit codes:",
        "Completion:",
    ):
        assert heading in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(alone: CliRunner, command: str) -> None:
    result = alone.invoke(cli.main, [command, "--help"])
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) > 3


def top_level_command(name: str) -> click.Command:
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command is not None
    return command


def all_commands(group: click.Group) -> list[click.Command]:
    ctx = click.Context(group)
    commands = [command for name in group.list_commands(ctx) if (command := group.get_command(ctx, name))]
    inner = [command for command in commands if isinstance(command, click.Group)]
    return [*commands, *(command for one in inner for command in all_commands(one))]


def test_a_session_is_called_so_in_every_help() -> None:
    for command in all_commands(cli.main):
        said = [command.help, command.short_help, *(getattr(param, "help", "") for param in command.params)]
        assert "onversation" not in " ".join(filter(None, said)), command.name


def test_every_command_has_its_line_in_the_help_of_a_narrow_terminal() -> None:
    long = [name for name in COMMANDS if len(top_level_command(name).get_short_help_str(90)) > 66]
    assert long == []


@pytest.mark.parametrize(
    ("words", "offered"),
    [("pool ev", "events"), ("pool events f", "follow"), ("pool sessions h", "history"), ("pool config s", "show")],
)
def test_a_shell_can_complete_commands(words: str, offered: str) -> None:
    args, word = words.split()[1:-1], words.rsplit(maxsplit=1)[-1]
    complete = BashComplete(cli.main, {}, "pool", "_POOL_COMPLETE")
    assert offered in [item.value for item in complete.get_completions(args, word)]


@pytest.mark.process
def test_the_help_imports_nothing_slow() -> None:
    program = "import sys, cli\ntry: cli.main(['--help'])\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"trio", "rich", "msgspec", "psutil", "asyncio", "platformdirs"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        (["stop"], {"trio", "psutil", "rich"}),
        (["status"], {"trio", "psutil", "rich"}),
        (["prompt", "-s", "a", "hi"], {"trio", "psutil", "rich"}),
    ],
)
def test_a_client_command_imports_no_more_than_it_uses(tmp_path: Path, command: list[str], unwanted: set[str]) -> None:
    program = f"import sys, cli\ntry: cli.main({command})\nexcept SystemExit: print(*sys.modules)"
    env = {"HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, env=env, check=True
    )
    assert "no supervisor listens on" in done.stderr
    assert not {name.partition(".")[0] for name in done.stdout.split()} & unwanted


# --- errors and exit codes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["status"], ["prompt", "-s", "a", "hi"], ["stop"], ["explain", "-s", "a"]])
def test_without_a_supervisor_the_exit_code_is_3_and_one_line_names_path_and_remedy(
    alone: CliRunner, tmp_path: Path, command: list[str]
) -> None:
    result = alone.invoke(cli.main, command)
    assert result.exit_code == 3
    assert result.stdout == ""
    socket = tmp_path / ".local" / "state" / "pool" / "control.sock"
    assert result.stderr == f"pool: no supervisor listens on {socket}; start one with: pool run\n"


def test_a_bad_settings_file_is_exit_code_2_with_its_line(alone: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text("[pool]\nmaxx = 1\n")
    for command in (["status"], ["run"], ["doctor"]):
        result = alone.invoke(cli.main, command)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"pool: {tmp_path}/pool.toml:2: pool.maxx: there is no such setting")


def test_the_error_of_a_method_is_one_line(bench: Bench) -> None:
    result = bench.run("worker", "stop", "w9")
    assert (result.exit_code, result.stderr) == (2, "pool: there is no worker w9\n")


def test_debug_shows_the_traceback(bench: Bench) -> None:
    result = bench.run("--debug", "worker", "stop", "w9")
    assert "Traceback" in result.stderr
    assert "Traceback" not in bench.run("worker", "stop", "w9").stderr


def test_what_nobody_foresaw_is_still_one_line(alone: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doors.control.client.ControlClient.__init__", lambda *_: 1 / 0)
    result = alone.invoke(cli.main, ["status"])
    assert result.exit_code == 1
    assert result.stderr == "pool: unexpected ZeroDivisionError: division by zero (pool --debug shows where)\n"


def test_an_interrupt_is_130(alone: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("doors.control.client.ControlClient.__init__", interrupt)
    assert alone.invoke(cli.main, ["status"]).exit_code == 130


@pytest.mark.parametrize(
    "command",
    [
        ["nonsense"],
        ["prompt", "hi"],
        ["prompt", "-s", "a"],
        ["prompt", "-s", "a", "--timeout", "soon", "hi"],
        ["run", "x"],
    ],
)
def test_a_wrong_command_line_is_2(alone: CliRunner, command: list[str]) -> None:
    assert alone.invoke(cli.main, command).exit_code == 2


def test_watching_and_json_exclude_each_other(bench: Bench) -> None:
    assert bench.run("status", "--watch", "--json").exit_code == 2


# --- what is printed ------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-"])
def test_a_closed_standard_stream_hinders_no_command(bench: Bench, closed: str) -> None:
    command = [sys.executable, "-P", "-m", "cli", "prompt", "--socket", str(bench.socket), "-s", "ada", "hello"]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    said = "" if closed == "1>&-" else "you said: hello\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_an_unexpected_error_is_named_however_many_groups_it_is_wrapped_in(
    alone: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [KeyError("what it was")])])

    monkeypatch.setattr("commands.supervisor.load_with_flags", fail)
    result = alone.invoke(cli.main, ["run"])
    assert (result.exit_code, "unexpected KeyError: 'what it was'" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["status"], "pool paused  4/4 workers"),
        (["workers"], "WORKER"),
        (["sessions"], "TRANSCRIPT"),
        (["waiting"], "all 4 workers are busy"),
        (["explain", "-s", "ada"], "wanted: main/default"),
        (["sessions", "list"], "TRANSCRIPT"),
        (["sessions", "get", "ada"], "READY"),
        (["sessions", "history", "ada", "--limit", "3"], '· exec {"cmd":"ls"}'),
    ],
)
def test_a_listing_is_a_table(bench: Bench, command: list[str], words: str) -> None:
    result = bench.run(*command)
    assert result.exit_code == 0
    assert words in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("command", "document"),
    [
        (["status"], DOCUMENT),
        (["workers"], DOCUMENT["workers"]),
        (["sessions"], CONVERSATIONS),
        (["waiting"], DOCUMENT["waiting"]),
        (["explain", "-r", "default"], EXPLANATION),
        (["sessions", "list"], CONVERSATIONS),
        (["sessions", "get", "ada"], SESSION),
        (["sessions", "history", "ada"], HISTORY),
        (["reload"], {"changed": ["pool.max", "log.level"], "needs_restart": ["data_dir"]}),
    ],
)
def test_a_listing_as_json_is_the_document_itself(bench: Bench, command: list[str], document: Any) -> None:
    assert bench.json(*command) == document


@pytest.mark.parametrize(
    ("command", "words", "call"),
    [
        (["pause"], "paused", ("pause", {})),
        (["resume"], "running", ("resume", {})),
        (["drain", "--timeout", "3s"], "drained", ("drain", {"timeout": 3.0})),
        (["worker", "recycle", "w1"], "worker w1 will be replaced", ("workers.recycle", {"worker": "w1"})),
        (
            ["reload"],
            "changed: pool.max, log.level\ntakes effect at the next start: data_dir",
            ("reload", {}),
        ),
        (["steer", "-s", "a", "go on"], "steered", ("steer", {"session": "a", "text": "go on"})),
        (["abort", "-s", "a", "--run", "r1"], "aborted", ("abort", {"session": "a", "run": "r1"})),
        (["approve", "c1"], "c1 is allowed", ("decide", {"call_id": "c1", "decision": "allow"})),
        (
            ["deny", "c1", "-s", "a", "--note", "no"],
            "c1 is denied",
            ("decide", {"call_id": "c1", "decision": "deny", "session": "a", "note": "no"}),
        ),
        (["sessions", "reset", "a"], "a is reset", ("sessions.reset", {"session": "a", "force": False})),
        (
            ["sessions", "reset", "busy", "--force"],
            "busy is reset; ended with it: calm-fox",
            ("sessions.reset", {"session": "busy", "force": True}),
        ),
        (["sessions", "delete", "a", "--yes"], "a is deleted", ("sessions.delete", {"session": "a"})),
    ],
)
def test_an_order_is_passed_on_and_confirmed(bench: Bench, command: list[str], words: str, call: Any) -> None:
    result = bench.run(*command)
    assert (result.exit_code, result.stdout) == (0, f"{words}\n")
    assert bench.pool.calls == [call]


def test_an_abort_that_finds_nothing_is_1(bench: Bench) -> None:
    result = bench.run("abort", "-s", "quiet")
    assert (result.exit_code, result.stderr) == (1, "pool: no run is in its turn in the session quiet\n")


def test_nothing_is_deleted_where_nobody_can_be_asked(bench: Bench) -> None:
    result = bench.run("sessions", "delete", "a")
    assert (result.exit_code, bench.pool.calls) == (2, [])
    assert "--yes" in result.stderr


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_a_deletion_asks_first(bench: Bench, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    monkeypatch.setattr("commands.options.is_interactive", lambda: True)
    result = bench.run("sessions", "delete", "a", stdin=answer)
    assert "Delete a and its history?" in result.stderr
    assert (result.exit_code, len(bench.pool.calls)) == (code, 1 - code)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_a_reset_asks_before_it_ends_commands_in_the_background(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    refused = bench.run("sessions", "reset", "busy")
    assert (refused.exit_code, refused.stderr.count("calm-fox still runs"), "--force" in refused.stderr) == (2, 1, True)
    monkeypatch.setattr("commands.options.is_interactive", lambda: True)
    result = bench.run("sessions", "reset", "busy", stdin=answer)
    assert "calm-fox still runs in the background. End it?" in result.stderr
    assert (result.exit_code, bench.pool.calls[-1][1]["force"]) == (code, code == 0)


def test_options_before_a_subcommand_hold_for_it(bench: Bench, alone: CliRunner) -> None:
    result = alone.invoke(cli.main, ["sessions", "--socket", str(bench.socket), "--json", "get", "ada"])
    assert msgspec.json.decode(result.stdout) == SESSION


def test_a_route_is_drawn_layer_by_layer_or_told_as_json(bench: Bench) -> None:
    command = ["route", "--channel", "telegram", "--chat-type", "group", "--chat", "-100", "--sender", "7"]
    result = bench.run(*command, "--role-id", "r1", "--role-id", "r2", "--parent", "channel:5", "--text", "hi")
    [(_, asked)] = bench.pool.calls
    assert asked["source"] == {
        "channel": "telegram",
        "chat_type": "group",
        "chat_id": "-100",
        "sender_id": "7",
        "member_role_ids": ["r1", "r2"],
        "parent_peer": {"kind": "channel", "id": "5"},
    }
    assert "agent:main:telegram:account:default:group:-100" in result.stdout
    assert bench.json(*command)["role"] == "default"


def test_the_chat_of_a_direct_message_is_its_senders(bench: Bench) -> None:
    bench.run("route", "--channel", "sms", "--chat-type", "dm", "--sender", "7")
    assert bench.pool.calls[0][1]["source"]["chat_id"] == "7"
    assert bench.run("route", "--channel", "sms", "--chat-type", "group", "--sender", "7").exit_code == 2
    wrong = bench.run("route", "--channel", "x", "--chat-type", "dm", "--sender", "7", "--parent", "nobody")
    assert wrong.exit_code == 2


def test_a_drain_that_takes_too_long_is_4(bench: Bench) -> None:
    assert bench.run("drain", "--timeout", "500ms").exit_code == 4


def test_the_doctor_tells_what_is_missing_by_its_exit_code(alone: CliRunner, tmp_path: Path) -> None:
    result = alone.invoke(cli.main, ["doctor", "--json"])
    checks = {check["name"]: check for check in msgspec.json.decode(result.stdout)}
    assert checks["python"]["verdict"] == "ok"
    assert result.exit_code == int(any(check["verdict"] == "missing" for check in checks.values()))
    (tmp_path / "pool.toml").write_text('[agents.ghost]\ncommand = ["/no/such/agent"]\n')
    result = alone.invoke(cli.main, ["doctor"])
    assert result.exit_code == 1
    assert "/no/such/agent is not found" in result.stdout
