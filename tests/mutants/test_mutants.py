"""The list of mutants fits the code, and the runner tells the dead from the living."""

import ast
import functools
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.house import ROOT
from tests.mutants import __main__ as program
from tests.mutants import runner
from tests.mutants.catalogue import BY_ROOM, MUTANTS
from tests.mutants.mutant import PROMISES, Mutant, RottenListError
from tests.mutants.runner import Fate, Verdict, check, run_all

GUARD = "    if not number:\n        raise ValueError\n"
TESTS = """
import pytest
from guarded import half

def test_zero_is_refused():
    with pytest.raises(ValueError):
        half(0)

def test_four_has_a_half():
    assert half(4) == 2
"""


def test_every_guard_of_the_list_is_in_its_file_exactly_once() -> None:
    check(MUTANTS, ROOT)


@functools.cache
def names_in(path: Path) -> set[str]:
    """Functions, and names that are given to the test cases of rule-based machines."""
    body = ast.parse(path.read_text()).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    names = [node.targets[0] for node in body if isinstance(node, ast.Assign)]
    return functions | {name.id for name in names if isinstance(name, ast.Name) and name.id.startswith("Test")}


def test_every_test_that_is_to_notice_exists() -> None:
    for mutant in MUTANTS:
        assert mutant.tests, mutant.without
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert name in names_in(ROOT / file), f"{test} is to notice that {mutant.without}"


def test_the_list_has_no_two_alike_and_covers_every_promise_and_room() -> None:
    assert len({(mutant.at, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.keeps for mutant in MUTANTS} == set(PROMISES)
    others = {"cluster", "gateway", "store", "agent", "heartbeat", "doors", "app", "stress"}
    assert set(BY_ROOM) == {"pool", "rpc", *others}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # none is needed here, and they take their time
    (tmp_path / "guarded.py").write_text(f"def half(number):\n{GUARD}    return number / 2\n")
    (tmp_path / "test_guarded.py").write_text(TESTS)
    return tmp_path


def mutant(new: str = "", test: str = "test_zero_is_refused", old: str = GUARD) -> Mutant:
    return Mutant("I1", "half of nothing", "guarded.py:half", old, new, (f"test_guarded.py::{test}",))


@pytest.mark.process
def test_a_mutant_is_killed_survives_or_proves_nothing_and_the_tree_stays_as_it_is(project: Path) -> None:
    before = (project / "guarded.py").read_text()
    mutants = [mutant(), mutant(test="test_four_has_a_half"), mutant(new="    if\n")]
    verdicts = list(run_all(mutants, project))
    assert [verdict.fate for verdict in verdicts] == [Fate.KILLED, Fate.SURVIVED, Fate.BROKEN]
    assert [verdict.mutant for verdict in verdicts] == mutants
    assert verdicts[0].noticed_by == "test_guarded.py::test_zero_is_refused"
    assert (project / "guarded.py").read_text() == before


@pytest.mark.process
def test_tests_that_fail_with_every_guard_in_its_place_are_refused(project: Path) -> None:
    (project / "test_guarded.py").write_text("def test_zero_is_refused():\n    raise AssertionError\n")
    with pytest.raises(RottenListError, match=r"already fail.*test_zero_is_refused"):
        list(run_all([mutant()], project))


@pytest.mark.process
def test_a_mutant_that_never_ends_is_ended_in_time_with_all_it_has_started_and_proves_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = project / "pid"
    endless = f"    while not number:\n        __import__('os').system('echo $$ > {pid}; exec sleep 61')\n"
    communicate = subprocess.Popen.communicate

    def end_as_soon_as_it_hangs(process: Any, *arguments: Any, **limits: Any) -> Any:
        if limits.get("timeout") != runner.LIMIT:
            return communicate(process, *arguments, **limits)
        while not (pid.exists() and pid.read_text()):
            assert process.poll() is None, "it has ended by itself"
            time.sleep(0.01)
        raise subprocess.TimeoutExpired(process.args, runner.LIMIT)

    monkeypatch.setattr(subprocess.Popen, "communicate", end_as_soon_as_it_hangs)
    (verdict,) = run_all([mutant(new=endless)], project)
    assert verdict.fate is Fate.ENDLESS
    assert verdict.noticed_by == f"no end within {runner.LIMIT:g} s"
    assert has_ended(int(pid.read_text()))


@pytest.mark.process
def test_what_fails_beside_its_tests_kills_no_mutant(project: Path) -> None:
    """An error in a fixture would come of any guard that is missing, or of a full disk."""
    (project / "test_guarded.py").write_text(
        TESTS + "\n@pytest.fixture\ndef refusal():\n    with pytest.raises(ValueError):\n        half(0)\n"
        "\ndef test_after_a_refusal(refusal):\n    pass\n"
    )
    (verdict,) = run_all([mutant(new="    number = number or 1\n", test="test_after_a_refusal")], project)
    assert verdict.fate is Fate.BROKEN
    assert verdict.noticed_by == "test_guarded.py::test_after_a_refusal"


SLOW = """
import signal
import time
import pytest
from guarded import half

@pytest.mark.timeout(60)  # this project has no limit of its own
def test_zero_is_refused():
    try:
        half(0)
    except ValueError:
        return
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(60)
    except BaseException as exc:
        raise RuntimeError("something that runs it has broken") from exc
"""
"""Without the guard the timer that ends a slow test goes off early, so the test takes no minute."""


@pytest.mark.process
def test_a_test_that_runs_out_of_its_own_time_proves_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")
    (project / "test_guarded.py").write_text(SLOW)
    (verdict,) = run_all([mutant(new="    number = number or 1\n")], project)
    assert verdict.fate is Fate.ENDLESS
    assert verdict.noticed_by == "test_guarded.py::test_zero_is_refused"


def has_ended(pid: int) -> bool:
    """Within a moment: what is killed is not gone at once."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return select.select([handle], [], [], 10) != ([], [], [])
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (mutant(old="no such text"), "guarded.py:half: 0 times, not once: 'no such text'"),
        (mutant(old="number"), "guarded.py:half: 3 times, not once: 'number'"),
        (mutant(new=GUARD), "the mutant changes nothing"),
        (Mutant("I1", "nothing", "gone.py:f", "a", "b", ()), "gone.py:f: no such function"),
        (Mutant("I1", "nothing", "guarded.py:Half.of", "a", "b", ()), "guarded.py:Half.of: no such function"),
    ],
)
def test_a_list_that_does_not_fit_the_code_is_refused(project: Path, wrong: Mutant, complaint: str) -> None:
    with pytest.raises(RottenListError, match=complaint):
        list(run_all([wrong], project))


def verdict_of(fate: Fate) -> Verdict:
    return Verdict(mutant(), fate, "test_guarded.py::test_x", 1.0)


@pytest.mark.parametrize(
    ("fates", "code", "sum_up"),
    [
        ([Fate.KILLED, Fate.KILLED], 0, "2 mutants, 2 killed, 0 not"),
        ([Fate.KILLED, Fate.SURVIVED], 1, "2 mutants, 1 killed, 1 not"),
        ([Fate.BROKEN], 1, "1 mutants, 0 killed, 1 not"),
        ([Fate.ENDLESS], 1, "1 mutants, 0 killed, 1 not"),
    ],
)
def test_the_command_prints_a_table_and_fails_unless_every_mutant_was_killed(
    fates: list[Fate], code: int, sum_up: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "run_all", lambda *_, **__: map(verdict_of, fates))
    assert program.main([]) == code
    table = capsys.readouterr().out
    assert sum_up in table
    assert [line.split()[0] for line in table.splitlines() if "half of nothing" in line] == fates


def test_the_command_refuses_a_list_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "MUTANTS", (mutant(old="no such text"),))
    assert program.main([]) == 2
    assert "does not fit the code" in capsys.readouterr().err


def test_words_choose_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Mutant] = []

    def choose(mutants: list[Mutant], *_: object, **__: object) -> list[Verdict]:
        chosen.extend(mutants)
        return []

    monkeypatch.setattr(program, "run_all", choose)
    assert program.main(["store/backlog.py"]) == 0
    assert {mutant.file for mutant in chosen} == {"store/backlog.py"}
