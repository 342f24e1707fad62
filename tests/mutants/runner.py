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

from tests.mutants.mutant import Mutant

__all__ = ["Fate", "RottenListError", "Verdict", "check", "run_all"]

LEFT_OUT = shutil.ignore_patterns(
    ".*cache", ".cache", ".git", ".hypothesis", ".venv", "__pycache__", "artefacts", "build", "dist", "*.egg-info"
)
LIMIT = 180.0
"""Seconds for the tests of one mutant; each test has a limit of its own besides."""
_TESTS_FAILED = 1
_ARGUMENTS = ("-x", "-q", "-p", "no:cacheprovider", "--tb=line", "--no-header")


class RottenListError(Exception):
    """The list does not fit the code any more."""


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"
    """Its tests could not even begin, which proves nothing."""
    ENDLESS = "ENDLESS"
    """Its tests did not end in time, which a slow machine does too; of a mutant that hangs it is the proof."""


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
        path = root / mutant.file
        found = path.read_text().count(mutant.old) if path.is_file() else 0
        if found != 1:
            problems.append(f"{mutant.file}: {found} times, not once: {mutant.old.strip()!r} ({mutant.without})")
        elif mutant.old == mutant.new:
            problems.append(f"{mutant.file}: the mutant changes nothing: {mutant.old.strip()!r}")
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
            for process in tuple(running):  # of whoever has been interrupted: a session of its own hears no Ctrl-C
                _end(process)


def _check_sound(tests: list[str], copy: Path, running: set[subprocess.Popen[str]]) -> None:
    code, words = _run_tests(tests, copy, LIMIT + 5.0 * len(tests), running)
    if code != 0:
        raise RottenListError(f"with every guard in its place the tests already fail: {words}")


def _try(mutant: Mutant, copies: "SimpleQueue[Path]", running: set[subprocess.Popen[str]]) -> Verdict:
    copy = copies.get()
    began = time.perf_counter()
    try:
        with _without_guard(copy / mutant.file, mutant):
            code, words = _run_tests(mutant.tests, copy, LIMIT, running)
    finally:
        copies.put(copy)
    out_of_time = Fate.KILLED if mutant.hangs else Fate.ENDLESS
    fates = {0: Fate.SURVIVED, _TESTS_FAILED: Fate.KILLED, None: out_of_time}
    fate = fates.get(code, Fate.BROKEN)
    return Verdict(mutant, fate, words, time.perf_counter() - began)


@contextmanager
def _without_guard(path: Path, mutant: Mutant) -> Iterator[None]:
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        yield
    finally:
        path.write_text(text)


def _run_tests(
    tests: Iterable[str], copy: Path, limit: float, running: set[subprocess.Popen[str]]
) -> tuple[int | None, str]:
    """Pytest's exit status, None where the time is over, and which test failed first or what was said last.

    What it has started ends with it where it is ended, supervisors and all. ``running``: where it is found meanwhile.
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
            return None, f"no end within {limit:g} s"
        except BaseException:
            _end(process)
            raise
        finally:
            running.remove(process)
    lines = said.strip().splitlines() or ["nothing was said"]
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR ")) and "::" in line]
    return process.returncode, failed[0] if failed else lines[-1]


def _end(process: subprocess.Popen[str]) -> None:
    """With the rest of its session, while that is nobody else's for certain."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
