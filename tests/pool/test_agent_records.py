"""What the pool remembers of agents' programs."""

from errors import WorkerExited, WorkerStartFailed
from pool.agent_records import AgentRecords
from wire.messages import Ready

FIRST = Ready(agent="codex-acp", version="2.6.0", capabilities=["load"])


def ready() -> AgentRecords:
    records = AgentRecords()
    records.note_ready("codex", FIRST)
    return records


def resumes(records: AgentRecords) -> str:
    found = records.find("codex")
    assert found is not None
    return found.resumes


def test_nothing_is_known_of_an_agent_before_its_first_start() -> None:
    assert AgentRecords().find("codex") is None


def test_a_worker_that_is_ready_shows_its_program_and_what_it_can() -> None:
    found = ready().find("codex")
    assert found is not None
    assert (found.program, found.version, found.capabilities) == ("codex-acp", "2.6.0", ("load",))
    assert (found.is_ready, found.problem, found.resumes) == (True, None, "unknown")


def test_one_load_shows_that_it_goes_on_and_two_failures_in_a_row_that_it_does_not() -> None:
    records = ready()
    for strategy, expected in (
        ("kept", "unknown"),
        ("refed", "unknown"),
        ("loaded", "yes"),
        ("refed", "yes"),
        ("refed", "no"),
        ("resumed", "yes"),
    ):
        records.note_resume("codex", strategy)
        assert resumes(records) == expected, strategy


def test_another_version_has_everything_to_show_again() -> None:
    records = ready()
    records.note_resume("codex", "refed")
    records.note_resume("codex", "refed")
    records.note_ready("codex", FIRST)
    assert resumes(records) == "no"
    records.note_ready("codex", Ready(agent="codex-acp", version="2.7.0"))
    assert resumes(records) == "unknown"
    records.note_resume("codex", "refed")
    assert resumes(records) == "unknown"


def test_why_a_start_failed_is_known_until_one_goes_well() -> None:
    records = ready()
    records.note_end("codex", WorkerExited("it was stopped"))
    assert records.find("codex") == ready().find("codex")
    records.note_end("codex", WorkerStartFailed("codex wants a login"))
    found = records.find("codex")
    assert found is not None
    assert (found.is_ready, found.problem, found.version) == (False, "codex wants a login", "2.6.0")
    records.note_ready("codex", FIRST)
    assert records.find("codex") == ready().find("codex")
