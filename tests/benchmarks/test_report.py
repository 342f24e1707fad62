"""The table and the file that a run of the benchmarks leaves."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.harness import Result, result
from benchmarks.promises import Promise
from benchmarks.report import Report, show, this_machine
from tests.benchmarks.reports import report_of

GOOD = result("p50", 5, "us", promise=Promise.PING, beside=(4, "us bare"), at_most=10)
BAD = result("p99", 50, "us", promise=Promise.PING, at_most=10)
BESIDE = result("something else", 1_234_567, "/s")


def printed(report: Report, *, is_whole: bool = True) -> str:
    output = StringIO()
    show(report, Console(file=output), is_whole=is_whole)
    return output.getvalue()


def row(table: str, word: str) -> str:
    return next(line for line in table.splitlines() if word in line)


def test_each_figure_is_shown_with_its_baseline_its_ratio_and_its_verdict() -> None:
    table = printed(report_of(GOOD, BAD))
    good, bad = row(table, "p50"), row(table, "p99")
    assert Promise.PING in good
    assert all(word in good for word in ("5 us", "4 us bare", "1.25 x", "<= 10 us", "met"))
    assert "missed" in bad
    assert report_of(GOOD, BAD, BESIDE).missed == [BAD]
    assert Promise.PING not in bad


def test_rows_come_in_the_order_of_the_promises_and_all_else_after_them() -> None:
    table = printed(report_of(BESIDE, GOOD, result("us", 1, "us", promise=Promise.ROUND_TRIP)))
    places = [table.index(word) for word in (Promise.ROUND_TRIP, Promise.PING, "something else")]
    assert places == sorted(places)
    assert "1,234,567 /s" in row(table, "something else")


def test_a_whole_run_names_the_rows_without_a_figure_and_a_part_does_not() -> None:
    assert "not measured" in row(printed(report_of(GOOD)), Promise.START[:30])
    assert "not measured" not in printed(report_of(GOOD), is_whole=False)
    assert report_of(GOOD).unmeasured == [promise for promise in Promise if promise is not Promise.PING]


def test_the_machine_is_described_under_the_table() -> None:
    table = printed(report_of(GOOD))
    assert "Some & Sons" in table
    assert "load at begin 0.10 0.20 0.30" in " ".join(table.split())


def test_the_machine_knows_the_load_of_its_begin_and_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 2.0, 1.0))
    machine = this_machine((0.5, 0.5, 0.5))
    assert (machine.load_at_begin, machine.load_at_end) == ((0.5, 0.5, 0.5), (3.0, 2.0, 1.0))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "bench.json"
    report = report_of(GOOD, BAD, BESIDE, Result(name="n", value=0.1, unit="s"))
    report.write(path)
    assert Report.read(path) == report
