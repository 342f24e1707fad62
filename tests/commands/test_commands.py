"""The command line: exit codes, requests and listings, with a server of fake handlers behind the socket."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import cli
from doors.control.client import ControlClient
from errors import Conflict
from tests.commands.documents import AGENTS, BEAT, DOCUMENT, JOB, JOBS, SESSION_VIEWS
from tests.commands.fake_pool import EVENT, EXPLANATION, HISTORY, SESSION, Bench, envelope

# --- errors and exit codes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["status"], ["prompt", "-s", "a", "hi"], ["stop"], ["explain", "-s", "a"]])
def test_without_a_supervisor_the_exit_code_is_3_and_one_line_names_path_and_remedy(
    alone: CliRunner, tmp_path: Path, command: list[str]
) -> None:
    result = alone.invoke(cli.main, command)
    socket = tmp_path / ".local" / "state" / "pool" / "control.sock"
    words = f"pool: no supervisor listens on {socket}; start one with: pool run\n"
    assert (result.exit_code, result.stdout, result.stderr) == (3, "", words)


def test_a_bad_settings_file_is_exit_code_2_with_its_line(alone: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text("[pool]\nmaxx = 1\n")
    for command in (["status"], ["run"], ["doctor"]):
        result = alone.invoke(cli.main, command)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"pool: {tmp_path}/pool.toml:2: pool.maxx: there is no such setting")


def test_the_error_of_a_method_is_one_line_and_its_traceback_is_for_debugging(bench: Bench) -> None:
    result = bench.run("workers", "stop", "w9")
    assert (result.exit_code, result.stderr) == (2, "pool: there is no worker w9\n")
    assert "Traceback" in bench.run("--debug", "workers", "stop", "w9").stderr


@pytest.mark.parametrize(
    ("error", "code", "stderr"),
    [
        (ZeroDivisionError("by zero"), 1, "pool: unexpected ZeroDivisionError: by zero (pool --debug shows where)\n"),
        (
            ExceptionGroup("outer", [ExceptionGroup("inner", [KeyError("it was")])]),
            1,
            "pool: unexpected KeyError: 'it was' (pool --debug shows where)\n",
        ),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_what_nobody_foresaw_is_one_line_however_it_is_wrapped_and_an_interrupt_is_130(
    alone: CliRunner, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, stderr: str
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("doors.control.client.ControlClient.__init__", fail)
    result = alone.invoke(cli.main, ["status"])
    assert (result.exit_code, result.stderr) == (code, stderr)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("nonsense", ""),
        ("prompt hi", ""),
        ("prompt -s a", ""),
        ("prompt -s a --timeout soon hi", ""),
        ("run x", ""),
        ("status --watch --json", "choose one"),
        ("events inject text", "'-s' / '--session'"),
        ("events list", "'-s' / '--session'"),
        ("route --channel sms --chat-type group --sender 7", ""),
        ("route --channel x --chat-type dm --sender 7 --parent nobody", ""),
        ("sessions delete a", "--yes"),
        ("sessions reset busy", "--force"),
        ("sessions --state idle show ada", " sessions show` has no option --state"),
        ("workers --limit 3 stop w1", " workers stop` has no option --limit"),
        ("service ls", "No such command 'ls'"),
        ("statu", "No such command 'statu'"),
    ],
)
def test_a_wrong_command_line_is_2(bench: Bench, command: str, words: str) -> None:
    result = bench.run(*command.split())
    assert (result.exit_code, words in result.stderr) == (2, True)
    assert [method for method, _ in bench.pool.calls if method != "sessions.reset"] == []


@pytest.mark.process
@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-"])
def test_a_closed_standard_stream_hinders_no_command(bench: Bench, closed: str) -> None:
    command = [sys.executable, "-P", "-m", "cli", "prompt", "--socket", str(bench.socket), "-s", "ada", "hello"]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=20, check=False)
    said = "" if closed == "1>&-" else "you said: hello\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


# --- what is asked for, and what is printed --------------------------------------------------------------------------

ANSWERS = {"heartbeat.status": AGENTS, "heartbeat.run": BEAT, "cron.list": JOBS, "decide": {"decision": "allow"}}
ANSWERS |= {f"cron.{name}": JOB for name in ("add", "get", "delete", "run", "enable", "disable")}
RELOADED = {"changed": ["pool.max", "log.level"], "needs_restart": ["data_dir"]}


@pytest.mark.parametrize(
    ("command", "words", "document"),
    [
        ("status", "pool paused  4/4 workers", DOCUMENT),
        ("workers", "WORKER", DOCUMENT["workers"]),
        ("sessions", "TRANSCRIPT", SESSION_VIEWS),
        ("waiting", "all 4 workers are busy", DOCUMENT["waiting"]),
        ("explain -s ada", "wanted: main/default", EXPLANATION),
        ("sessions list", "TRANSCRIPT", SESSION_VIEWS),
        ("worker show w1", "leased", DOCUMENT["workers"][0]),
        ("sessions show ada", "idle", SESSION),
        ("sessions history ada --limit 3", '· exec {"cmd":"ls"}', HISTORY),
        ("reload", "changed: pool.max, log.level\ntakes effect at the next start: data_dir\n", RELOADED),
        ("events list -s ada", "CAME", {"session": "ada", "events": [EVENT]}),
        ("events peek -s bob", "no system events queued\n", {"session": "bob", "events": []}),
    ],
)
def test_a_listing_is_a_table_or_as_json_the_document_itself(
    bench: Bench, command: str, words: str, document: Any
) -> None:
    result = bench.run(*command.split())
    assert (result.exit_code, words in result.stdout, "\x1b" in result.stdout) == (0, True, False)
    assert bench.json(*command.split()) == document


RECYCLED = ("workers.recycle", {"worker": "w1"})
FORCED = ("sessions.reset", {"session": "busy", "force": True})
BELL = {"session": "ada", "text": "the bell rang"}
STANDUP = "standup: cron 0 9 * * mon-fri (Europe/Berlin)"
FULL_JOB: dict[str, Any] = {
    "id": "a",
    "every": "1h",
    "mode": "isolated",
    "delivery": "none",
    "timeout": "5m",
    "agent": "ops",
}
FULL_JOB |= {"tz": "UTC", "delete_after_run": True, "replace": True, "text": "x"}
KEPT_JOB = {"every": "1h", "mode": "isolated", "keep": True, "text": "x"}
CRON_JOB = {"cron": "* * * * *", "session": "alice", "delete_after_run": False, "text": "x"}


@pytest.mark.parametrize(
    ("command", "words", "call"),
    [
        ("pause", "paused\n", ("pause", {})),
        ("approve c1 -s a", "c1 is allowed\n", ("decide", {"call_id": "c1", "decision": "allow", "session": "a"})),
        ("deny c1", "c1 is allowed\n", ("decide", {"call_id": "c1", "decision": "deny"})),
        ("cron enable a", "standup is enabled: cron 0 9 * * mon-fri (Europe/Berlin)\n", ("cron.enable", {"id": "a"})),
        ("cron disable a", "standup is disabled\n", ("cron.disable", {"id": "a"})),
        ("resume", "running\n", ("resume", {})),
        ("drain --timeout 3s", "drained\n", ("drain", {"timeout": 3.0})),
        ("workers recycle w1", "worker w1 will be replaced\n", RECYCLED),
        ("steer -s a go_on", "steered\n", ("steer", {"session": "a", "text": "go on"})),
        ("abort -s a --run r1", "aborted\n", ("abort", {"session": "a", "run": "r1"})),
        ("sessions reset a", "a is reset\n", ("sessions.reset", {"session": "a", "force": False})),
        ("sessions reset busy --force", "busy is reset; ended with it: calm-fox\n", FORCED),
        ("sessions delete a --yes", "a is deleted\n", ("sessions.delete", {"session": "a"})),
        ("events inject -s ada the_bell_rang", "the event is queued for ada\n", ("events.inject", BELL)),
        (
            "events inject -s ada --kind channel -",
            "the event is queued for ada\n",
            ("events.inject", {**BELL, "kind": "channel"}),
        ),
        (
            "events inject -s ada again",
            "the same event is already queued for ada; nothing was added\n",
            ("events.inject", {"session": "ada", "text": "again"}),
        ),
        ("heartbeats", "night-watch", ("heartbeat.status", {})),
        ("heartbeats list", "night-watch", ("heartbeat.status", {})),
        ("heartbeats run", "main reports in 3.2 s:", ("heartbeat.run", {})),
        ("heartbeats run ops", "main reports", ("heartbeat.run", {"agent": "ops"})),
        ("heartbeats run -s alice", "main reports", ("heartbeat.run", {"session": "alice"})),
        ("cron", "standup", ("cron.list", {})),
        ("cron list --after a", "standup", ("cron.list", {"after": "a"})),
        ("cron show a", "standup", ("cron.get", {"id": "a"})),
        ("cron run a", "standup is begun; see: pool cron show standup\n", ("cron.run", {"id": "a"})),
        ("cron delete a", "standup is deleted\n", ("cron.delete", {"id": "a"})),
        ("cron add --at 20m -", STANDUP, ("cron.add", {"at": "20m", "text": "the bell rang"})),
        (
            "cron add --id a --every 1h --isolated --to none --timeout 5m --agent ops --tz UTC --delete --replace x",
            STANDUP,
            ("cron.add", FULL_JOB),
        ),
        ("cron add --every 1h --isolated --keep-conversation x", STANDUP, ("cron.add", KEPT_JOB)),
        ("cron add --cron *_*_*_*_* -s alice --keep x", STANDUP, ("cron.add", CRON_JOB)),
    ],
)
def test_a_command_asks_for_one_thing_and_says_what_came_of_it(
    bench: Bench, command: str, words: str, call: tuple[str, Any]
) -> None:
    bench.pool.fixed = ANSWERS
    args = [word.replace("_", " ") for word in command.split()]
    result = bench.run(*args, stdin="the bell rang")
    assert (result.exit_code, bench.pool.calls) == (0, [call]), result.output
    assert result.stdout == words if words.endswith("\n") else words in result.stdout
    answered = bench.pool.answered[-1]
    assert bench.json(*args, stdin="the bell rang") == answered


def test_one_heartbeat_is_shown(bench: Bench) -> None:
    bench.pool.fixed = ANSWERS
    shown = bench.run("heartbeats", "show", "night-watch").stdout
    assert ("\nnight-watch" in shown, "\nmain" in shown) == (True, False)
    assert bench.json("heartbeats", "show", "main") == next(iter(ANSWERS["heartbeat.status"]))
    assert bench.run("heartbeats", "show", "none").exit_code == 2


@pytest.mark.parametrize(("outcome", "code"), [("silent", 0), ("repeated", 0), ("skipped", 1), ("failed", 1)])
def test_the_exit_code_says_whether_there_was_a_beat_that_went_well(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, outcome: str, code: int
) -> None:
    timeouts, call = [], ControlClient.call

    def note(client: ControlClient, method: str, params: Any = None, timeout: float | None = 10.0) -> Any:
        timeouts.append(timeout)
        return call(client, method, params, timeout)

    monkeypatch.setattr(ControlClient, "call", note)
    bench.pool.fixed = {"heartbeat.run": {**BEAT, "outcome": outcome, "skipped": "disabled"}}
    assert (bench.run("heartbeats", "run").exit_code, timeouts) == (code, [None]), "a beat may take its time"


def test_a_job_that_would_not_run_is_kept_with_a_warning_and_refused_to_run(bench: Bench) -> None:
    bench.pool.fixed = {"cron.add": {**JOB, "problem": "events do not wake agent main"}}
    result = bench.run("cron", "add", "--every", "1h", "x")
    assert (result.exit_code, result.stderr) == (0, "warning: events do not wake agent main\n")
    bench.pool.fixed = {"cron.run": Conflict("job standup does not run")}
    refused = bench.run("cron", "run", "standup")
    assert (refused.exit_code, refused.stderr) == (1, "pool: job standup does not run\n")


@pytest.mark.parametrize(
    ("command", "code", "stderr"),
    [
        ("abort -s quiet", 1, "pool: no run is in its turn in the session quiet\n"),
        ("drain --timeout 500ms", 4, "pool: turns are still running; the pool goes on draining\n"),
    ],
)
def test_what_was_not_achieved_is_an_error(bench: Bench, command: str, code: int, stderr: str) -> None:
    result = bench.run(*command.split())
    assert (result.exit_code, result.stderr) == (code, stderr)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_a_deletion_asks_first_and_a_reset_before_it_ends_commands_in_the_background(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("commands.options.is_interactive", lambda: True)
    result = bench.run("sessions", "delete", "a", stdin=answer)
    assert "Delete a and its history?" in result.stderr
    assert (result.exit_code, len(bench.pool.calls)) == (code, 1 - code)
    result = bench.run("sessions", "reset", "busy", stdin=answer)
    assert "calm-fox still runs in the background. End it?" in result.stderr
    assert (result.exit_code, bench.pool.calls[-1][1]["force"]) == (code, code == 0)


def test_options_before_a_subcommand_hold_for_it(bench: Bench, alone: CliRunner) -> None:
    result = alone.invoke(cli.main, ["sessions", "--socket", str(bench.socket), "--json", "show", "ada"])
    assert msgspec.json.decode(result.stdout) == SESSION


def test_a_route_is_drawn_layer_by_layer_or_shown_as_json(bench: Bench) -> None:
    command = ["route", "--channel", "telegram", "--chat-type", "group", "--chat", "-100", "--sender", "7"]
    result = bench.run(*command, "--role-id", "r1", "--role-id", "r2", "--parent", "channel:5", "--text", "hi")
    source: dict[str, Any] = {"channel": "telegram", "chat_type": "group", "chat_id": "-100", "sender_id": "7"}
    source |= {"member_role_ids": ["r1", "r2"], "parent_peer": {"kind": "channel", "id": "5"}}
    assert bench.pool.calls == [("route", {"source": source, "text": "hi"})]
    assert "agent:main:telegram:account:default:group:-100" in result.stdout
    assert bench.json(*command)["role"] == "default"
    bench.run("route", "--channel", "sms", "--chat-type", "dm", "--sender", "7")
    assert bench.pool.calls[-1][1]["source"]["chat_id"] == "7", "the chat of a direct message is its sender's"


# --- pool events follow; what it shows on a terminal and over restarts is tested in its parts -----------------------

EVENTS = [envelope(41, "run:start", {"worker": "w1"}), envelope(43, "done", {"reason": "completed"})]


def test_into_a_pipe_events_are_json_lines_and_the_end_tells_where_to_go_on(bench: Bench) -> None:
    bench.pool.events = EVENTS
    options = ["-s", "ada", "--channel", "progress", "--channel", "control", "--type", "done", "--since", "40"]
    result = bench.run("events", "follow", "--no-reconnect", *options)
    assert [msgspec.json.decode(line) for line in result.stdout.splitlines()] == EVENTS
    again = "-s ada --channel progress --channel control --type done --no-reconnect --since 43"
    words = [f"to continue from here: pool events follow {again}", "pool: the supervisor is stopping"]
    assert (result.exit_code, result.stderr.splitlines()) == (1, words)
    wish = {"session": "ada", "channels": ["progress", "control"], "kinds": ["done"], "since": 40}
    assert bench.pool.calls[0] == ("subscribe", wish)
    bench.pool.calls.clear()
    bench.run("events", "follow", "--no-reconnect")
    assert [asked for _, asked in bench.pool.calls] == [{}, {"since": 43}], "without options all, from now on"


# --- pool doctor ----------------------------------------------------------------------------------------------------


def test_the_doctor_tells_what_is_missing_by_its_exit_code(alone: CliRunner, tmp_path: Path) -> None:
    result = alone.invoke(cli.main, ["doctor", "--json"])
    checks = {check["name"]: check for check in msgspec.json.decode(result.stdout)}
    assert checks["python"]["verdict"] == "ok"
    assert result.exit_code == int(any(check["verdict"] == "missing" for check in checks.values()))
    (tmp_path / "pool.toml").write_text('[agents.ghost]\ncommand = ["/no/such/agent"]\n')
    result = alone.invoke(cli.main, ["doctor"])
    assert (result.exit_code, "/no/such/agent is not found" in result.stdout) == (1, True)
