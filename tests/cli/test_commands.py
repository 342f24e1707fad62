"""The command line: help, exit codes and what is printed, with a control server of fake handlers behind the socket."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from click.testing import CliRunner, Result

import cli
from doors.control import serve_control
from errors import AcquireTimeout, PoolSaturated, UsageError
from tests.doors.test_tables import DOCUMENT

COMMANDS = ["run", "stop", "pause", "resume", "drain", "prompt", "status", "workers", "sessions", "waiting"]
COMMANDS += ["explain", "worker", "doctor", "demo"]
EXPLANATION = {
    "session": "ada",
    "profile": {"signature": "a1b2c3d4", "agent": "main", "role": "default", "cwd": "/"},
    "workers": [{"worker": "w1", "level": "exact", "difference": "", "state": "idle", "session": None}],
}


class FakePool:
    """Handlers with the methods of a supervisor; keeps what was called with what."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def call(self, method: str, params: msgspec.Raw, caller: Any) -> Any:
        asked = msgspec.json.decode(params) or {}
        self.calls.append((method, asked))
        match method:
            case "status":
                return DOCUMENT
            case "workers.list" | "sessions.list" | "waiting.list":
                return DOCUMENT[method.partition(".")[0]]
            case "explain":
                return EXPLANATION
            case "prompt":
                return await self.answer(asked, caller)
            case "drain":
                return {"drained": asked["timeout"] != 0.5}
            case "pause" | "resume" | "workers.recycle":
                return {}
            case _:
                raise UsageError(f"there is no worker {asked.get('worker')}")

    async def answer(self, asked: Any, caller: Any) -> Any:
        match asked["text"]:
            case "full":
                raise PoolSaturated("the waiting list is full", retry_after=2.0)
            case "late":
                raise AcquireTimeout("no worker became free")
            case "defect":
                raise KeyError("oops")
        for piece in ("you said: ", asked["text"]):
            data = {"request": caller.request_id, "type": "assistant_message", "data": {"partial": piece}}
            await caller.push("event", data)
        return {"session": asked["session"], "worker": "w1", "text": "...", "stop_reason": "stop"}


class Bench:
    """A command runner beside a control server that runs in a thread."""

    def __init__(self, socket: Path, pool: FakePool) -> None:
        self.socket = socket
        self.pool = pool

    def run(self, *args: str, stdin: str | bytes | None = None) -> Result:
        env = {"POOL_SOCKET": str(self.socket), "COLUMNS": "140"}
        return CliRunner().invoke(cli.main, args, input=stdin, env=env)

    def json(self, *args: str) -> Any:
        result = self.run(*args, "--json")
        assert result.exit_code == 0, result.output
        return msgspec.json.decode(result.stdout)


@pytest.fixture
def bench() -> Iterator[Bench]:
    pool, ready = FakePool(), threading.Event()
    stop: list[Any] = []

    async def serve(path: Path) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_control, pool, path)
            stop.extend([trio.lowlevel.current_trio_token(), nursery.cancel_scope.cancel])
            ready.set()

    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        thread = threading.Thread(target=trio.run, args=(serve, Path(folder) / "s"))
        thread.start()
        assert ready.wait(5)
        yield Bench(Path(folder) / "s", pool)
        stop[0].run_sync_soon(stop[1])
        thread.join(5)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """A runner on a machine without any supervisor or settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("POOL_SOCKET", "POOL_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return CliRunner()


# --- help -----------------------------------------------------------------------------------------------------------


def test_the_help_lists_every_command_under_a_heading(alone: CliRunner) -> None:
    result = alone.invoke(cli.main, ["--help"])
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ") and line.split()]
    assert set(COMMANDS) <= set(listed)
    assert set(cli.main.commands) == set(COMMANDS)
    for heading in (
        "Supervisor:",
        "Conversations:",
        "What is going on:",
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


@pytest.mark.parametrize("command", ["status", "workers", "sessions", "waiting", "explain", "doctor", "prompt"])
def test_every_listing_takes_json(alone: CliRunner, command: str) -> None:
    assert "--json" in alone.invoke(cli.main, [command, "--help"]).stdout


@pytest.mark.process
def test_the_help_imports_nothing_slow() -> None:
    program = "import sys, cli\ntry: cli.main(['--help'])\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"trio", "rich", "msgspec", "psutil", "asyncio", "platformdirs"}


@pytest.mark.process
def test_a_client_command_does_not_import_trio(tmp_path: Path) -> None:
    program = "import sys, cli\ntry: cli.main(['status'])\nexcept SystemExit: print(*sys.modules)"
    env = {"HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, env=env, check=True
    )
    assert "no supervisor listens on" in done.stderr
    assert not {name.partition(".")[0] for name in done.stdout.split()} & {"trio", "rich", "psutil"}


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


def test_debug_shows_the_traceback(bench: Bench) -> None:
    result = bench.run("--debug", "worker", "stop", "w9")
    assert "Traceback" in result.stderr
    assert "Traceback" not in bench.run("worker", "stop", "w9").stderr


def test_what_nobody_foresaw_is_still_one_line(alone: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doors.control_client.ControlClient.__init__", lambda *_: 1 / 0)
    result = alone.invoke(cli.main, ["status"])
    assert result.exit_code == 1
    assert result.stderr == "pool: unexpected ZeroDivisionError: division by zero (pool --debug shows where)\n"


def test_an_interrupt_is_130(alone: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("doors.control_client.ControlClient.__init__", interrupt)
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


def test_a_prompt_streams_its_answer(bench: Bench) -> None:
    result = bench.run("prompt", "-s", "ada", "-r", "reviewer", "--priority", "7", "--timeout", "2m", "hello")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "you said: hello\n", "")
    [(method, asked)] = bench.pool.calls
    assert asked.pop("run")  # a name of its own making
    assert (method, asked) == (
        "prompt",
        {"session": "ada", "text": "hello", "agent": "main", "role": "reviewer", "priority": 7, "timeout": 120.0},
    )


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

    monkeypatch.setattr("cli.supervisor.load", fail)
    result = alone.invoke(cli.main, ["run"])
    assert (result.exit_code, "unexpected KeyError: 'what it was'" in result.stderr) == (1, True)


def test_a_prompt_can_come_from_stdin(bench: Bench) -> None:
    assert bench.run("prompt", "-s", "ada", "-", stdin="from a pipe").stdout == "you said: from a pipe\n"


def test_a_prompt_as_json_is_one_event_a_line_and_the_outcome_last(bench: Bench) -> None:
    lines = [msgspec.json.decode(line) for line in bench.run("prompt", "-s", "a", "--json", "hi").stdout.splitlines()]
    assert [line.get("type") for line in lines] == ["assistant_message", "assistant_message", None]
    assert lines[-1]["outcome"]["worker"] == "w1"


def test_a_failed_prompt_as_json_ends_with_the_error(bench: Bench) -> None:
    result = bench.run("prompt", "-s", "a", "--json", "full")
    assert result.exit_code == 4
    assert msgspec.json.decode(result.stdout)["error"]["code"] == "saturated"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["status"], "pool paused  4/4 workers"),
        (["workers"], "WORKER"),
        (["sessions"], "TRANSCRIPT"),
        (["waiting"], "all 4 workers are busy"),
        (["explain", "-s", "ada"], "wanted: main/default"),
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
        (["sessions"], DOCUMENT["sessions"]),
        (["waiting"], DOCUMENT["waiting"]),
        (["explain", "-r", "default"], EXPLANATION),
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
    ],
)
def test_an_order_is_passed_on_and_confirmed(bench: Bench, command: list[str], words: str, call: Any) -> None:
    result = bench.run(*command)
    assert (result.exit_code, result.stdout) == (0, f"{words}\n")
    assert bench.pool.calls == [call]


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
