"""The command writes the report where it is told to, green or red, and says where."""

from pathlib import Path
from typing import Any

import pytest

from stress.command import stress
from stress.outcome import StressResult
from stress.plan import StressOptions
from tests.stress.report.made_up import a_result, a_violation, verdicts


def run_that_ends_with(result: StressResult, monkeypatch: pytest.MonkeyPatch, file: Path) -> int:
    async def drive(*_: Any, **__: Any) -> StressResult:
        return result

    monkeypatch.setattr("stress.command.drive_own", drive)
    return stress(StressOptions(), report=file)


@pytest.mark.parametrize(
    ("result", "state"), [(a_result(), "GREEN"), (a_result(verdicts=verdicts(I1=1)), "RED")], ids=["green", "red"]
)
def test_after_a_run_the_report_is_there_and_told_of(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    result: StressResult,
    state: str,
) -> None:
    file = tmp_path / "page.html"
    assert run_that_ends_with(result, monkeypatch, file) == (state == "RED")
    assert f"<title>{state}: pool stress" in file.read_text(encoding="utf-8")
    assert f"The report: {file}" in capsys.readouterr().out


def test_the_terminal_shows_the_shortest_history_and_what_was_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = a_result(verdicts=verdicts(I1=1), violations=(a_violation(),), harms={"lost": 1})
    run_that_ends_with(result, monkeypatch, tmp_path / "page.html")
    told = capsys.readouterr().out
    assert "1 lost, 0 duplicated, 0 foreign" in told
    assert "started" in told
    assert "lifebegan" not in told
