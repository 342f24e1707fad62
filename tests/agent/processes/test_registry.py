"""The registry: who is told of an end and who is not, what it bounds, and that it sleeps while nothing happens."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from agent.processes.exec_session import ExecSession, ProcessInput
from agent.processes.registry import ProcessRegistry, RegistryLimits
from agent.processes.spawn import ShellCommand, SpawnFailed
from agent.tools.process import perform_action
from rpc.sweep import kill_marked
from tests.agent.processes.helpers import ENVIRONMENT, Bench, bench_of, processes_with
from wire.messages import ExecExit
from wire.procfs import MARKER_VARIABLE

PROJECT = Path(__file__).parents[3]

pytestmark = pytest.mark.process


def command(line: str, **environment: str) -> ShellCommand:
    return ShellCommand(line=line, cwd="/", environment={**ENVIRONMENT, **environment}, takes_input=True)


def in_background(registry: ProcessRegistry, line: str, **environment: str) -> ExecSession:
    session = registry.start(command(line, **environment), scope_key="mine")
    registry.move_to_background(session)
    return session


COUNTED = " ".join(map(str, range(1, 1001)))


async def end_of(session: ExecSession) -> None:
    with trio.fail_after(10):
        await session.ended.wait()


@pytest.mark.parametrize(
    ("line", "notice"),
    [
        ("echo a; printf ' b\\n\\n c '; exit 0", ExecExit("", "Exec completed ({}, code 0) :: a b c", "mine", 0)),
        ("exit 3", ExecExit("", "Exec completed ({}, code 3)", "mine", 3)),
        ("exit 127", ExecExit("", "Exec failed ({}, code 127)", "mine", 127)),
        ("kill -9 $$", ExecExit("", "Exec failed ({}, signal SIGKILL)", "mine", None, "SIGKILL")),
        ("seq 1000", ExecExit("", f"Exec completed ({{}}, code 0) :: {COUNTED[-400:]}", "mine", 0)),
    ],
)
async def test_the_end_of_a_background_command_is_told_once_in_one_line(
    bench: Bench, line: str, notice: ExecExit
) -> None:
    session = in_background(bench.registry, line)
    await end_of(session)
    bench.registry.notify_exit(session)
    (told,) = bench.notices
    expected = (session.id, "mine", notice.summary.format(session.id), notice.exit_code, notice.signal)
    assert (told.session_id, told.session_key, told.summary, told.exit_code, told.signal) == expected


async def test_a_foreground_command_is_told_to_nobody_and_forgotten(bench: Bench) -> None:
    session = bench.registry.start(command("echo x"), scope_key="mine")
    await end_of(session)
    assert (bench.notices, bench.changes, bench.registry.sessions("mine")) == ([], [], [])


async def test_an_end_that_a_poll_waited_for_is_not_told_again(bench: Bench) -> None:
    session = in_background(bench.registry, "read x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(perform_action, ProcessInput("poll", session.id, timeout=10), bench.registry, "mine")
        await trio.testing.wait_all_tasks_blocked()
        await session.stdin.end()
    assert session.exited
    assert bench.notices == []


async def test_an_end_that_a_poll_gave_up_waiting_for_is_told(bench: Bench) -> None:
    session = in_background(bench.registry, "read x")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(perform_action, ProcessInput("poll", session.id, timeout=10), bench.registry, "mine")
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    await session.stdin.end()
    await end_of(session)
    assert len(bench.notices) == 1


HOST = """
import os, sys, trio
from agent.processes.registry import ProcessRegistry
from agent.processes.spawn import ShellCommand
async def main():
    async with trio.open_nursery() as nursery:
        registry = ProcessRegistry()
        await nursery.start(registry.run)
        session = registry.start(ShellCommand(line=sys.argv[1], cwd=sys.argv[2], environment=dict(os.environ)))
        registry.move_to_background(session)
        await session.has_output.wait()
        print(flush=True)
trio.run(main)
"""


# A process that is just being replaced by another program shows no environment: it speaks when it is there, and stays.
LINE = "mkfifo up never; exec 3<>up; (setsid sh -c 'echo >&3; read x < never' &); read -u 3; echo up; read x < never"


def test_after_a_kill_of_the_worker_its_supervisor_finds_every_command_by_its_mark(workspace: Path) -> None:
    mark = f"{secrets.token_hex(8)}:w1"
    environment = {**os.environ, MARKER_VARIABLE: mark}
    command = [sys.executable, "-c", HOST, LINE, str(workspace)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, cwd=PROJECT) as host:
        assert host.stdout is not None
        host.stdout.readline()
        left = set(processes_with(f"{MARKER_VARIABLE}={mark}")) - {host.pid}
        host.kill()
    assert len(left) == 2
    swept = kill_marked(mark, 5)
    assert (set(swept.killed), swept.left) == (left, ())


async def test_there_are_never_more_commands_than_it_allows(workspace: Path) -> None:
    async with bench_of(limits=RegistryLimits(running=2)) as bench:
        first = in_background(bench.registry, "sleep 60")
        in_background(bench.registry, "sleep 60")
        with pytest.raises(SpawnFailed, match="2 commands run already"):
            bench.registry.start(command("true"))
        await bench.registry.kill(first)
        await end_of(bench.registry.start(command("true")))


class Wakeups(trio.abc.Instrument):
    """Counts how often the loop had something to do."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - the interface's
        self.count += 1


async def test_fifty_idle_commands_cost_no_wakeups(bench: Bench) -> None:
    for _ in range(50):
        in_background(bench.registry, "exec sleep 60")
    in_background(bench.registry, "exec >&- 2>&-; exec sleep 60")  # a closed stream is no reason to wake up either
    await trio.testing.wait_all_tasks_blocked(0.2)
    wakeups = Wakeups()
    trio.lowlevel.add_instrument(wakeups)
    await trio.sleep(0.5)  # what is measured is that nothing happens meanwhile
    trio.lowlevel.remove_instrument(wakeups)
    assert wakeups.count <= 10  # this test's own and the odd late start; asked once a second each, it were 25
    with trio.fail_after(15):
        await bench.registry.aclose()


async def test_two_writers_do_not_mix_their_words(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.processes.exec_session._WRITE_TIMEOUT", 1000)  # a command may take its time to read
    session = in_background(bench.registry, "sleep 0.1; cat")
    one, other = b"a" * 100_000 + b"\n", b"b" * 100_000 + b"\n"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.stdin.write, one)
        nursery.start_soon(session.stdin.write, other)
    await session.stdin.end()
    await end_of(session)
    assert session.output.text() in {text[-200_000:] for text in ((one + other).decode(), (other + one).decode())}


async def test_a_writer_that_waits_is_told_when_the_command_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.processes.exec_session._WRITE_TIMEOUT", 1000)
    session = in_background(bench.registry, "sleep 60")
    output = None
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            nonlocal output
            output = await perform_action(ProcessInput("write", session.id, data="x" * 100_000), bench.registry, "mine")

        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        await bench.registry.kill(session)
    assert output is not None
    assert output.text in {"Failed: the command has ended.", "Failed: the command has closed its input."}
