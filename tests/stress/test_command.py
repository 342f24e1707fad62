"""The command itself: what cannot be done is said at once, results are written, and a signal leaves nothing behind."""

import io
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO

import msgspec
import pytest
import trio
from click.testing import CliRunner

from commands.stress import stress as stress_command
from errors import NoSupervisor, PoolError, RequestTimeout, UsageError, unwrap_exception_groups
from stress.agents import AGENTS
from stress.command import stress
from stress.outcome import INVARIANTS, StressResult
from stress.plan import FAULTS, LOADS, StressOptions
from stress.run import drive_attached
from tests.stress.report.made_up import a_result, a_violation, verdicts
from wire.procfs import children_of
from wire.terminal import exit_code

WISH = StressOptions(sessions=12, requests=40, rate=2.0)
COMMAND = (sys.executable, "-P", "-m", "cli", "stress", "--workers", "2")


@contextmanager
def run_under_load(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], IO[str], str]]:
    """A run with ``folder`` for its files, its stderr, and the first line of that."""
    files = ["--json", str(folder / "all.json"), "--report", str(folder / "page.html"), "--requests", "500"]
    env = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen([*COMMAND, *files, *more], env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield process, process.stderr, process.stderr.readline()


def names(process: Path, folder: str) -> bool:
    """Whether its command line names the folder."""
    try:
        return folder.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def closed_pipe() -> TextIO:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w", encoding="utf-8")


@pytest.mark.process
def test_ended_by_a_signal_a_run_leaves_no_process_and_no_file_and_says_so() -> None:
    with tempfile.TemporaryDirectory(prefix="p") as folder:  # a socket's path is short
        with run_under_load(Path(folder), "--faults", "F1,F7") as (process, stderr, first):
            process.send_signal(signal.SIGINT)
            said = first + stderr.read()
        assert process.returncode == 128 + signal.SIGINT
        assert said.splitlines()[0].split()[1] == "s"
        *_, how_far, ended = said.splitlines()
        assert re.fullmatch(r" *\d+ s  [\d,]+ answered, .* \d+ faults, \d+ promises broken", how_far)
        assert ended.startswith("ended by SIGINT: nothing is left")
        assert "Traceback" not in said
        assert list(Path(folder).iterdir()) == []
        assert [entry.name for entry in Path("/proc").glob("[0-9]*") if names(entry, folder)] == []


@pytest.mark.process
def test_where_a_run_is_killed_its_supervisor_and_workers_end_all_the_same_and_its_folder_goes() -> None:
    with tempfile.TemporaryDirectory(prefix="p") as folder, ExitStack() as handles:
        with run_under_load(Path(folder)) as (process, _, _):
            handle: dict[int, int] = {}
            while len(handle) <= 3:  # the run, its keeper, its supervisor, a worker
                named = {int(entry.name) for entry in Path("/proc").glob("[0-9]*") if names(entry, folder)}
                family = {child for pid in named for child in children_of(pid)} | named
                for pid in family - handle.keys():
                    with suppress(ProcessLookupError):  # an evicted worker
                        handle[pid] = os.pidfd_open(pid)
                        handles.callback(os.close, handle[pid])
            process.kill()
        alive = [pid for pid, descriptor in handle.items() if not select.select([descriptor], [], [], 60)[0]]
        assert alive == []
        assert list(Path(folder).glob("pool-stress-*")) == []


@pytest.mark.process
def test_where_stderr_takes_nothing_the_run_goes_on_and_everything_is_written(tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "all.json"), "--report", str(tmp_path / "page.html")]
    line = [*COMMAND, "--requests", "3", "--rate", "5", *files]
    with closed_pipe() as stderr:
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False)
    assert "Every promise that was checked was kept" in done.stdout
    assert done.returncode == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["all.json", "page.html"]


# --- what is refused before the run -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("json_file", "report", "message"),
    [
        ("x", "./x", "name two files"),
        ("pipe", None, "cannot write .*pipe: No such device"),
        (None, "file/page.html", "cannot write"),
        (None, "misspelt/page.html", "cannot write"),
        ("all.json", "file/page.html", "cannot write"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_and_no_other_is_left(
    tmp_path: Path, json_file: str | None, report: str | None, message: str
) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=message):
        stress(
            WISH,
            json_file=None if json_file is None else tmp_path / json_file,
            report=None if report is None else tmp_path / report,
        )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "pipe"]


def test_more_workers_than_fit_into_this_machine_are_refused() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        stress(StressOptions(workers=1_000_000))
    assert caught.group_contains(UsageError, match="--workers 1000000 are too many .* it holds [0-9]+", depth=None)


def test_help_names_all_loads_faults_agents_and_promises() -> None:
    said = CliRunner().invoke(stress_command, ["--help"]).output
    assert all(re.search(rf"^  {name} +{kind.description[:20]}", said, re.MULTILINE) for name, kind in AGENTS.items())
    assert re.findall(r"^  ([LFI]\d+) ", said, re.MULTILINE) == [*LOADS, *FAULTS, *INVARIANTS]


def test_the_name_of_a_load_may_be_written_small_and_is_said_in_large_letters() -> None:
    said = CliRunner().invoke(stress_command, ["--load", "l9", "--seconds", "1"])
    assert isinstance(said.exception, ExceptionGroup)
    with pytest.raises(UsageError, match="no load 'L9'; --load takes one of L1, L2,"), unwrap_exception_groups():
        raise said.exception


def test_a_run_that_is_refused_leaves_no_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(stress_command, ["--load", "L9"]).exception is not None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "artefacts").touch()
    refused = CliRunner().invoke(stress_command, ["--seconds", "1"]).exception
    assert isinstance(refused, UsageError)
    assert str(refused) == "cannot write artefacts/stress.html: Not a directory"
    (tmp_path / "artefacts").unlink()
    (tmp_path / "artefacts").mkdir()
    (tmp_path / "artefacts" / "of an earlier run").touch()
    assert CliRunner().invoke(stress_command, ["--load", "L9"]).exception is not None
    assert [file.name for file in tmp_path.glob("*/*")] == ["of an earlier run"]


# --- what is written after the run ------------------------------------------------------------------------------------

ComeTo = Callable[[StressResult | Exception], StressResult | Exception]


@pytest.fixture
def come_to(monkeypatch: pytest.MonkeyPatch) -> ComeTo:
    """Sets what every run comes to."""

    def set_result(result: StressResult | Exception) -> StressResult | Exception:
        async def drive(*_: object, **__: object) -> StressResult:
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr("stress.command.drive_own", drive)
        return result

    return set_result


def is_whole(json_file: Path) -> bool:
    return msgspec.json.decode(json_file.read_bytes(), type=StressResult).fates == a_result().fates


@pytest.mark.parametrize("error", [PoolError("it does not start"), UsageError("that cannot be"), RuntimeError("oh")])
def test_a_run_that_fails_leaves_no_file_that_was_not_there(tmp_path: Path, come_to: ComeTo, error: Exception) -> None:
    come_to(error)
    there = tmp_path / "all.json"
    there.write_text("of an earlier run")
    with pytest.raises(ExceptionGroup) as caught:
        stress(WISH, json_file=there, report=tmp_path / "page.html")
    assert caught.group_contains(type(error), depth=None)
    assert [file.name for file in tmp_path.iterdir()] == ["all.json"]
    assert there.read_text() == "of an earlier run"


RED = a_result(verdicts=verdicts(I1=1), violations=(a_violation(),), harms={"lost": 1})


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (a_result(), (0, "GREEN", ("Every promise",))),
        (RED, (1, "RED", ("1 lost, 0 duplicated, 0 foreign", "started"))),
        (a_result(fates={"error: request_timeout": 3}), (1, "", ("No request was completed",))),
        (a_result(fates={}), (1, "", ("No request was completed",))),
    ],
    ids=["green", "red", "none completed", "none ended"],
)
def test_the_exit_code_the_terminal_and_the_report_say_what_came_of_the_run(
    tmp_path: Path, come_to: ComeTo, capsys: pytest.CaptureFixture[str], result: StressResult, expected: Any
) -> None:
    code, title, words = expected
    come_to(result)
    file = tmp_path / "page.html"
    assert stress(WISH, report=file) == code
    assert f"<title>{title}" in file.read_text(encoding="utf-8")
    said = capsys.readouterr().out
    assert f"The report: {file}" in said
    assert all(word in said for word in words)
    assert "lifebegan" not in said


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "closed pipe"])
def test_where_stdout_takes_nothing_the_files_are_written_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, come_to: ComeTo, *, is_full: bool
) -> None:
    come_to(a_result())
    json_file, page = tmp_path / "all.json", tmp_path / "page.html"
    with Path("/dev/full").open("w") if is_full else closed_pipe() as stdout:  # that it is closed must not fail either
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(PoolError) as caught:
            stress(WISH, json_file=json_file, report=page)
    why = "No space left on device" if is_full else "Broken pipe"
    assert str(caught.value) == f"cannot write the table to stdout: {why}"
    assert exit_code(caught.value) == 1
    assert is_whole(json_file)
    assert page.read_text().endswith("</html>\n")


def test_where_a_file_takes_nothing_the_rest_is_written_and_that_is_said(
    tmp_path: Path, come_to: ComeTo, capsys: pytest.CaptureFixture[str]
) -> None:
    come_to(a_result())
    full, page, json_file = Path("/dev/full"), tmp_path / "page.html", tmp_path / "all.json"
    with pytest.raises(PoolError, match=r"^cannot write /dev/full: No space left on device$"):
        stress(WISH, json_file=full, report=page)
    assert page.read_text().endswith("</html>\n")
    table = capsys.readouterr().out
    assert a_result().kept_sentence in table
    assert f"The report: {page}" in table
    with pytest.raises(PoolError, match=r"^cannot write /dev/full: No space left on device$"):
        stress(WISH, json_file=json_file, report=full)
    assert is_whole(json_file)
    assert "The report" not in capsys.readouterr().out


def test_a_report_that_could_not_be_made_is_not_left_empty(
    tmp_path: Path, come_to: ComeTo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: StressResult) -> NoReturn:
        raise ValueError("no such colour")

    come_to(a_result())
    monkeypatch.setattr("stress.command.render_report", fail)
    with pytest.raises(PoolError, match=r"cannot write .*page.html: ValueError: no such colour"):
        stress(WISH, json_file=tmp_path / "all.json", report=tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["all.json"]
    assert a_result().kept_sentence in capsys.readouterr().out


def test_where_our_marks_cannot_be_encoded_others_stand_for_them(
    monkeypatch: pytest.MonkeyPatch, come_to: ComeTo
) -> None:
    come_to(a_result())
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    assert stress(WISH) == 0
    table = written.getvalue().decode("latin-1")
    assert "+ I12" in table
    assert "?" not in table


# --- a supervisor that runs already -----------------------------------------------------------------------------------


async def test_where_no_supervisor_listens_there_is_nothing_to_attach_to(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await drive_attached(WISH, tmp_path / "absent")
    assert caught.group_contains(NoSupervisor, match="no supervisor listens", depth=None)


async def test_a_supervisor_that_is_stopped_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stress.attached_target._ANSWER_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as stopped, trio.fail_after(10):
        stopped.bind(str(tmp_path / "s"))
        stopped.listen()  # the kernel connects, and no program accepts or answers
        with pytest.raises(RequestTimeout, match=r"did not answer status in time; is it stopped or overloaded\?"):
            await drive_attached(WISH, tmp_path / "s")


@pytest.mark.parametrize(
    ("wish", "option"), [(StressOptions(workers=3), "--workers"), (StressOptions(agents="acp"), "--agents")]
)
async def test_workers_are_not_to_be_wished_for_from_a_supervisor_that_runs_already(
    tmp_path: Path, wish: StressOptions, option: str
) -> None:
    with pytest.raises(UsageError, match=option):
        await drive_attached(wish, tmp_path / "any")
