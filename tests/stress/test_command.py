"""The command itself: what cannot be done is told at once, and ended by a signal it leaves nothing behind."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NoReturn

import pytest
import trio
from click.testing import CliRunner

from cli.stress import stress as stress_command
from doors.control_client import NoSupervisor
from doors.supervisor_process import SupervisorProcess
from errors import PoolError, UsageError, first_of
from stress.command import stress
from stress.facts import Answered, Fact
from stress.outcome import Result
from stress.plan import Wish
from stress.processes import children_of
from stress.recorder import Recorder
from stress.running import drive_attached
from tests.stress.report.made_up import a_result

WISH = Wish(sessions=12, requests=40, rate=2.0)


@contextmanager
def run_under_load(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], IO[str], str]]:
    """A run with ``folder`` for its files, what it says, and what it has said in its first second."""
    line = [sys.executable, "-P", "-m", "cli", "stress", "--workers", "2", "--requests", "500", *more]
    files = ["--json", str(folder / "all.json"), "--report", str(folder / "page.html")]
    env = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen([*line, *files], env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield process, process.stderr, process.stderr.readline()


def run_and_end_with(number: signal.Signals, folder: Path) -> tuple[int, str]:
    """Exit code, and all that it said, of a run that is sent a signal under load."""
    with run_under_load(folder, "--faults", "F1,F7") as (process, words, first):
        process.send_signal(number)
        said = first + words.read()
    return process.returncode, said


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_by_a_signal_a_run_leaves_no_process_and_no_file_and_says_so(number: signal.Signals) -> None:
    with tempfile.TemporaryDirectory(prefix="p") as folder:  # a socket's path is short
        code, said = run_and_end_with(number, Path(folder))
        assert code == 128 + number
        assert said.splitlines()[0].split()[1] == "s"
        assert f"ended by {number.name}" in said
        assert "Traceback" not in said
        assert list(Path(folder).iterdir()) == []
        assert [entry.name for entry in Path("/proc").glob("[0-9]*") if is_told_of(entry, folder)] == []


@pytest.mark.process
def test_where_a_run_is_killed_its_supervisor_and_workers_end_all_the_same() -> None:
    with tempfile.TemporaryDirectory(prefix="p") as folder, ExitStack() as handles:
        with run_under_load(Path(folder)) as (process, _, _):
            told = {int(entry.name) for entry in Path("/proc").glob("[0-9]*") if is_told_of(entry, folder)}
            family = {child for pid in told for child in children_of(pid)} | told
            handle = {}
            for pid in family:
                with suppress(ProcessLookupError):  # an evicted worker
                    handle[pid] = os.pidfd_open(pid)
                    handles.callback(os.close, handle[pid])
            process.kill()
        assert len(handle) > 3  # the run, its keeper, its supervisor, a worker
        alive = [pid for pid, descriptor in handle.items() if not select.select([descriptor], [], [], 15)[0]]
        assert alive == []


def is_told_of(process: Path, folder: str) -> bool:
    """Whether its command line names the folder."""
    try:
        return folder.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("place", ["file/page.html", "misspelt/page.html"])
def test_a_file_that_cannot_be_written_is_told_of_before_the_run(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write"):
        stress(WISH, report=tmp_path / place)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_more_workers_than_fit_into_this_machine_are_told_of_before_the_run() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        stress(Wish(workers=1_000_000))
    assert caught.group_contains(UsageError, match="--workers 1000000 are too many .* it holds [0-9]+", depth=None)


def test_the_name_of_a_load_may_be_written_small_and_is_said_in_large_letters() -> None:
    said = CliRunner().invoke(stress_command, ["--load", "l9", "--seconds", "1"])
    assert isinstance(said.exception, ExceptionGroup)
    group, _ = said.exception.split(UsageError)
    assert group is not None
    assert "no load 'L9'; --load takes one of L1, L2," in str(first_of(group))


@pytest.mark.parametrize("error", [PoolError("it does not start"), UsageError("that cannot be"), RuntimeError("oh")])
def test_a_run_that_fails_leaves_no_file_that_was_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("stress.command.drive_own", fail)
    there = tmp_path / "all.json"
    there.write_text("of an earlier run")
    with pytest.raises(ExceptionGroup) as caught:
        stress(WISH, json_file=there, report=tmp_path / "page.html")
    assert caught.group_contains(type(error), depth=None)
    assert [file.name for file in tmp_path.iterdir()] == ["all.json"]
    assert there.read_text() == "of an earlier run"


def test_the_first_file_is_not_left_where_the_second_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write"):
        stress(WISH, json_file=tmp_path / "all.json", report=tmp_path / "file" / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("fates", "code"), [({"completed": 1}, 0), ({"error: request_timeout": 3}, 1), ({}, 1)])
def test_a_run_in_which_no_request_was_completed_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fates: dict[str, int], code: int
) -> None:
    async def come_to(*_: object, **__: object) -> Result:
        return a_result(fates=fates)

    monkeypatch.setattr("stress.command.drive_own", come_to)
    assert stress(WISH) == code
    assert ("Not one request was completed" in capsys.readouterr().out) == bool(code)


async def test_where_nobody_listens_there_is_nothing_to_attach_to(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await drive_attached(WISH, tmp_path / "nobody")
    assert caught.group_contains(NoSupervisor, match="no supervisor listens", depth=None)


async def test_workers_are_not_to_be_wished_for_from_a_supervisor_that_runs_already(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--workers"):
        await drive_attached(Wish(workers=3), tmp_path / "any")


@pytest.mark.process
async def test_a_supervisor_that_ends_while_it_is_driven_ends_the_run_with_it(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, "[pool]\nmax = 2\n") as supervisor:

        def end_it(fact: Fact) -> None:
            if isinstance(fact, Answered):
                os.kill(supervisor.pid, signal.SIGTERM)

        def follow(recorder: Recorder) -> None:
            recorder.listeners.append(end_it)

        with trio.fail_after(25), pytest.raises(ExceptionGroup) as caught:
            await drive_attached(WISH, supervisor.socket, show=follow)
    assert caught.group_contains(NoSupervisor, depth=None)
