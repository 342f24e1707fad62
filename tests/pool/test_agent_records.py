"""What the pool remembers of agents' programs."""

import pytest
from msgspec import structs

from errors import WorkerExited, WorkerStartFailed
from pool.agent_records import AgentRecords, ProgramRecord
from wire.messages import Ready

FIRST = Ready(agent="codex-acp", version="2.6.0", capabilities=["load", "resume"])
LATER = Ready(agent="codex-acp", version="2.7.0", capabilities=["load", "resume"])


def ready(records: AgentRecords | None = None) -> AgentRecords:
    records = records or AgentRecords()
    records.note_ready("codex", FIRST)
    return records


def found(records: AgentRecords) -> ProgramRecord:
    record = records.find("codex")
    assert record is not None
    return record


def test_nothing_is_known_of_an_agent_before_its_first_start() -> None:
    assert AgentRecords().find("codex") is None


def test_a_worker_that_is_ready_shows_its_program_and_what_it_can() -> None:
    record = found(ready())
    assert (record.program, record.version, record.capabilities) == ("codex-acp", "2.6.0", ("load", "resume"))
    assert (record.is_ready, record.problem, record.resumes, record.honest) == (True, None, "unknown", "unknown")


def test_one_load_shows_that_it_goes_on_and_two_failures_in_a_row_that_it_does_not() -> None:
    records = ready()
    for strategy, cause, expected in (
        ("kept", None, "unknown"),
        ("refed", "error", "unknown"),
        ("loaded", None, "yes"),
        ("refed", "less", "yes"),
        ("refed", "unsupported", "yes"),
        ("refed", "error", "no"),
        ("refed", "error", "no"),
        ("resumed", None, "yes"),
    ):
        records.note_resume("codex", FIRST, strategy, cause)
        assert found(records).resumes == expected, (strategy, cause)
        assert records.forgets("codex") == (expected == "no")


def test_another_version_has_everything_to_show_again() -> None:
    records = ready()
    records.note_probe("codex", FIRST, honest=True)
    for _ in range(2):
        records.note_resume("codex", FIRST, "refed", "error")
    records.note_ready("codex", FIRST)
    assert (found(records).resumes, found(records).honest) == ("no", "yes")
    records.note_ready("codex", LATER)
    assert (found(records).resumes, found(records).honest) == ("unknown", "unknown")
    assert not records.is_honest("codex", FIRST), "of a worker that still runs"
    for _ in range(2):
        records.note_resume("codex", FIRST, "refed", "error")
    assert found(records).resumes == "unknown"


def test_why_a_start_failed_is_known_until_one_goes_well() -> None:
    records = ready()
    records.note_end("codex", WorkerExited("it was stopped"))
    assert records.find("codex") == ready().find("codex")
    records.note_end("codex", WorkerStartFailed("codex wants a login"))
    record = found(records)
    assert (record.is_ready, record.problem, record.version) == (False, "codex wants a login", "2.6.0")
    records.note_ready("codex", FIRST)
    assert records.find("codex") == ready().find("codex")


@pytest.mark.parametrize(
    ("capabilities", "forgets"), [([], True), (["close"], True), (["load"], False), (["resume"], False), (None, False)]
)
def test_an_agent_without_a_way_back_forgets(capabilities: list[str] | None, *, forgets: bool) -> None:
    records = AgentRecords()
    said = Ready(agent="a", version="1")
    if capabilities is not None:
        said = structs.replace(said, capabilities=capabilities)
    records.note_ready("codex", said)
    assert records.forgets("codex") is forgets


# --- whether it refuses what it does not have ---


def test_each_version_is_asked_once_for_a_conversation_that_it_cannot_have() -> None:
    records = AgentRecords()
    assert records.wants_probe("codex", FIRST)
    assert not records.wants_probe("codex", FIRST), "it is being asked, or has died of it"
    assert records.wants_probe("codex", LATER)
    records.note_probe("codex", LATER, honest=False)
    records.note_ready("codex", LATER)
    assert found(records).honest == "no"
    assert not records.wants_probe("codex", LATER)


@pytest.mark.parametrize(
    "said",
    [
        None,
        Ready(agent="a", version="1"),
        Ready(agent="a", version="1", capabilities=["load"]),
        Ready(agent="a", capabilities=["resume"]),
    ],
)
def test_no_other_agent_is_asked(said: Ready | None) -> None:
    """One without a version would have to be asked at each start."""
    assert not AgentRecords().wants_probe("codex", said)


# --- what outlives the supervisor ---


def test_what_was_learned_outlives_the_supervisor_and_is_written_once() -> None:
    kept: dict[str, bytes] = {}
    writes: list[str] = []

    def keep(agent: str, body: bytes) -> None:
        writes.append(agent)
        kept[agent] = body

    records = ready(AgentRecords(keep=keep))
    records.note_probe("codex", FIRST, honest=True)
    for _ in range(3):
        records.note_resume("codex", FIRST, "loaded")
    records.note_resume("codex", FIRST, "refed", "error")
    assert writes == ["codex"] * 3
    later = AgentRecords(kept, keep)
    record = found(later)
    assert (record.program, record.version, record.resumes, record.honest) == ("codex-acp", "2.6.0", "yes", "yes")
    assert later.is_honest("codex", FIRST)
    assert not later.wants_probe("codex", FIRST)
    later.note_resume("codex", FIRST, "refed", "error")
    assert AgentRecords(kept).forgets("codex"), "failures of both lives count"
    ready(AgentRecords(kept, keep))
    assert len(writes) == 4, "a start alone shows nothing that would be kept"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"resumes":"perhaps"}'])
def test_a_document_that_cannot_be_read_is_learned_again(body: bytes) -> None:
    records = ready(AgentRecords({"codex": body}))
    assert found(records).resumes == "unknown"


def test_a_name_is_cut_and_nothing_is_kept_of_a_program_without_a_version() -> None:
    kept: dict[str, bytes] = {}
    records = AgentRecords(keep=kept.__setitem__)
    records.note_ready("codex", Ready(agent="x" * 10_000, capabilities=["load"]))
    records.note_resume("codex", Ready(agent="x" * 10_000), "loaded")
    assert (len(found(records).program), found(records).resumes, kept) == (200, "yes", {})
