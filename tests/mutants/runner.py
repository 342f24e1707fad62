"""Takes the guards out of copies of the tree, one at a time, and runs the tests that must notice."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

import msgspec

from tests.mutants.mutant import Mutant, RottenListError

LEFT_OUT = shutil.ignore_patterns(
    ".*cache", ".cache", ".git", ".hypothesis", ".venv", "__pycache__", "artefacts", "build", "dist", "*.egg-info"
)
LIMIT = 180.0
"""Seconds for the tests of one mutant; each test has a limit of its own besides."""
_PASSED, _FAILED = 0, 1
_ARGUMENTS = ("-x", "-q", "-p", "no:cacheprovider", "--tb=short", "--no-header")
"""With the tracebacks, for there a timeout is to be seen whatever it was wrapped into on its way."""
_TIMED_OUT = "from pytest-timeout"


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"
    """Its tests could not even begin, or a fixture failed and none of them, which proves nothing."""
    ENDLESS = "ENDLESS"
    """A test did not end in time, or all together did not: a slow machine does that too, so it proves nothing."""


class _Outcome(msgspec.Struct, frozen=True):
    """Pytest's exit status, None where the time was over; ``words``: the test that failed, or what was said last.

    ``failed``: the test that failed, by itself and not in a fixture, empty = none did; ``timed_out``: one took longer
    than it may.
    """

    code: int | None
    words: str
    failed: str = ""
    timed_out: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """One mutant and its fate; ``noticed_by``: the test that failed, or what pytest said last."""

    mutant: Mutant
    fate: Fate
    noticed_by: str
    seconds: float


def check(mutants: Iterable[Mutant], root: Path) -> None:
    """Raise RottenListError unless every guard is where the list says, exactly once."""
    problems = []
    for mutant in mutants:
        try:
            mutant.apply(root)
        except RottenListError as exc:
            problems.append(str(exc))
    if problems:
        raise RottenListError("\n".join(problems))


def run_all(mutants: Sequence[Mutant], root: Path, *, lanes: int = 2) -> Iterator[Verdict]:
    """The fate of every mutant, in the order of the list, from ``lanes`` copies at a time.

    Raises RottenListError where the list does not fit, or the tests fail with all guards in their places.
    """
    check(mutants, root)
    with tempfile.TemporaryDirectory(prefix="mutants-") as where, ThreadPoolExecutor(lanes) as threads:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(lanes):
            copies.put(shutil.copytree(root, Path(where) / str(number), ignore=LEFT_OUT, symlinks=True))
        running = set[subprocess.Popen[str]]()
        try:
            _check_sound(sorted({test for mutant in mutants for test in mutant.tests}), Path(where) / "0", running)
            yield from threads.map(lambda mutant: _try(mutant, copies, running), mutants)
        finally:
            for process in tuple(running):  # after Ctrl-C: a session of its own does not receive it
                _end(process)


def _check_sound(tests: list[str], copy: Path, running: set[subprocess.Popen[str]]) -> None:
    outcome = _run_tests(tests, copy, LIMIT + 5.0 * len(tests), running)
    if outcome.code != _PASSED:
        raise RottenListError(f"with every guard in its place the tests already fail: {outcome.words}")


def _try(mutant: Mutant, copies: "SimpleQueue[Path]", running: set[subprocess.Popen[str]]) -> Verdict:
    copy = copies.get()
    began = time.perf_counter()
    try:
        with _without_guard(copy, mutant):
            outcome = _run_tests(mutant.tests, copy, LIMIT, running)
    finally:
        copies.put(copy)
    return Verdict(mutant, _fate(mutant, outcome), outcome.words, time.perf_counter() - began)


def _fate(mutant: Mutant, outcome: _Outcome) -> Fate:
    """Killed by a test that has failed; by an error in a fixture or the end of its time nothing was noticed."""
    if outcome.code is None or (outcome.code != _PASSED and outcome.timed_out):
        return Fate.ENDLESS
    if outcome.code == _PASSED:
        return Fate.SURVIVED
    has_noticed = outcome.code == _FAILED and any(_is_of(test, outcome.failed) for test in mutant.tests)
    return Fate.KILLED if has_noticed else Fate.BROKEN


def _is_of(test: str, failed: str) -> bool:
    """Whether that is the test, with whichever parameters, or the one of a rule-based machine of that name."""
    return failed == test or failed.startswith((f"{test}[", f"{test}::"))


@contextmanager
def _without_guard(root: Path, mutant: Mutant) -> Iterator[None]:
    path = root / mutant.file
    text = path.read_text()
    path.write_text(mutant.apply(root))
    try:
        yield
    finally:
        path.write_text(text)


def _run_tests(tests: Iterable[str], copy: Path, limit: float, running: set[subprocess.Popen[str]]) -> _Outcome:
    """Run pytest in a session of its own, so that what the tests have started ends with it.

    ``running`` holds the process meanwhile.
    """
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-m", "pytest", *_ARGUMENTS, *tests]
    with subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        running.add(process)
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _end(process)
            return _Outcome(None, f"no end within {limit:g} s")
        except BaseException:
            _end(process)
            raise
        finally:
            running.remove(process)
    return _read(process.returncode, said)


def _read(code: int, said: str) -> _Outcome:
    lines = said.strip().rpartition("short test summary info")[2].splitlines() or ["nothing was said"]
    names = {word: _first_name(word, lines) for word in ("FAILED", "ERROR")}
    words = names["FAILED"] or names["ERROR"] or lines[-1]
    return _Outcome(code, words, failed=names["FAILED"], timed_out=_TIMED_OUT in said)


def _first_name(word: str, lines: Sequence[str]) -> str:
    """Of the tests that the summary has under that word; empty = it has none."""
    return next((line.split()[1] for line in lines if line.startswith(f"{word} ") and "::" in line), "")


def _end(process: subprocess.Popen[str]) -> None:
    """With the rest of its session; not once it is reaped, for the id may then be another's."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
