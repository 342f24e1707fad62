"""What the terminal says at the end is no more than what was seen."""

import io

import msgspec
import pytest
from rich.console import Console

from stress.metrics import RunMetrics
from stress.outcome import StressResult
from stress.terminal import show_result
from tests.stress.report.made_up import a_result
from tests.stress.story import Story


def shown(result: StressResult) -> str:
    file = io.StringIO()
    show_result(result, Console(file=file, width=160))
    return file.getvalue()


def test_requests_to_workers_that_misbehave_are_counted_as_the_faults_that_they_are() -> None:
    story, meter = Story(), RunMetrics(0.0, 0.0)
    story.ask(1)
    story.ask(2, faulty=True)
    for fact in story.facts:
        meter.observe(fact)
    assert meter.faulty == 1
    assert "3 requests to faulty workers" in shown(msgspec.structs.replace(a_result(), faults=(), faulty=3))
    quiet = msgspec.structs.replace(a_result(), faults=(), series=())
    assert "and 0 faults" in " ".join(shown(quiet).split())
    assert "and 3 faults" in " ".join(shown(msgspec.structs.replace(quiet, faulty=3)).split())


@pytest.mark.parametrize(("checked", "words"), [(5, "Every promise kept"), (0, "Every promise that was checked was")])
def test_a_promise_that_was_never_looked_at_is_not_said_to_be_kept(checked: int, words: str) -> None:
    result = a_result()
    first, *rest = (msgspec.structs.replace(verdict, checked=5) for verdict in result.verdicts)
    verdicts = (msgspec.structs.replace(first, checked=checked), *rest)
    assert words in shown(msgspec.structs.replace(result, verdicts=verdicts))


def test_of_a_run_in_which_no_request_was_completed_nothing_is_said() -> None:
    result = msgspec.structs.replace(a_result(), fates={"error: request_timeout": 3})
    assert result.all_kept
    assert result.is_empty
    assert "Every promise" not in shown(result)
    assert "No request was completed, so no promise was proven" in shown(result)
    assert result.plan.command in " ".join(shown(result).split())
