"""What lies between the wire and the judges: words, the ledger of requests, figures by the second, transcripts."""

import gc
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from stress.arrivals import Arrival
from stress.attached_target import PoolLimits
from stress.checker.base import ObservedState
from stress.facts import (
    DirectViolation,
    Fact,
    Journal,
    PoolEvent,
    ProcessSample,
    PromptOccurrences,
    RequestAnswered,
    RequestStarted,
    SupervisorStarted,
)
from stress.metrics import RunMetrics
from stress.own_target import OwnTarget
from stress.plan import StressOptions, make_plan
from stress.recorder import RunRecorder
from stress.request_tracker import Nonces, RequestTracker, read_transcripts
from stress.run import _StressRun
from stress.sampler import read_status
from stress.schedule import check_rules, own_limits, settings_text
from tests.stress.story import Story
from wire.events import EventChannel
from wire.messages import ErrorBody, EventEnvelope

NONCES = Nonces(7)


def event(seq: int, kind: str, run: str | None, session: str = "ada", **data: Any) -> EventEnvelope:
    return EventEnvelope(seq, 9.0, session, EventChannel.PROGRESS, kind, msgspec.Raw(msgspec.json.encode(data)), run)


class Books:
    """A tracker and its facts."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.ledger = RequestTracker(NONCES, Journal(lambda: 1.0, self.facts.append), prefix="mine")

    def ask(self, number: int, session: str = "ada") -> dict[str, Any]:
        arrival = Arrival(number=number, at=0.0, session=session, role="p0", priority=5, turn=0.25)
        return self.ledger.open_request(arrival, 60.0)


def test_of_a_session_with_many_requests_its_name_is_kept_once(tmp_path: Path) -> None:
    plan = make_plan(StressOptions(sessions=20, requests=200))
    recorder = RunRecorder(plan, check_rules(plan, [], own_limits(plan)))
    target = OwnTarget(tmp_path, "", [], journal=recorder)
    run = _StressRun(recorder, [], [], target)
    arrivals = list(run._all_arrivals())
    assert len(run._sessions) == len(arrivals) == 200
    assert len({id(name) for name in run._sessions.values()}) == 20


def test_so_it_is_in_the_books_of_the_judges() -> None:
    book = ObservedState()
    for fact in Story("; ".join(f"ask {number} ada" for number in range(5))).facts:
        book.apply(fact)
    assert len(book.sessions) == 5
    assert len({id(name) for name in book.sessions.values()}) == 1


def test_facts_are_none_of_the_garbage_collectors_business() -> None:
    assert not gc.is_tracked(RequestStarted(t=1.0, number=1, worker="w1"))


def test_each_request_has_a_word_that_is_found_again_in_any_text() -> None:
    text = f'You said: "{NONCES.word(3)}". (turn 2; before: "DELAY=7 {NONCES.word(12345678)}")'
    assert NONCES.find(text) == ((3, 12345678), ())


def test_a_word_of_no_request_is_strange() -> None:
    damaged = NONCES.word(3)[:-1] + ("0" if NONCES.word(3)[-1] != "0" else "1")
    assert NONCES.find(damaged) == ((), (damaged,))
    assert NONCES.find(Nonces(8).word(3)).unknown != ()


def test_a_request_is_sent_with_its_id_its_word_and_the_time_its_turn_takes() -> None:
    params = Books().ask(5)
    assert params["run"] == "mine-5"
    assert params["text"] == f"DELAY=250 {NONCES.word(5)}"
    assert (params["session"], params["role"], params["queue"]) == ("ada", "p0", "followup")


def test_an_outcome_closes_its_request_and_tells_whose_words_it_has() -> None:
    books = Books()
    books.ask(5)
    books.ledger.on_accepted(5, {"accepted_at": 8.0})
    books.ledger.on_event(event(10, "run:start", "mine-5", worker="w1"))
    books.ledger.on_event(event(11, "done", "mine-5", reason="completed", text=NONCES.word(5)))
    started, answered = books.facts[-2:]
    assert isinstance(started, RequestStarted)
    assert (started.worker, started.at) == ("w1", 9.0)
    assert isinstance(answered, RequestAnswered)
    assert (answered.number, answered.said, answered.at, answered.session) == (5, (5,), 9.0, "ada")
    assert (books.ledger.open, books.ledger.accepted_numbers, books.ledger.bookmark) == ({}, {}, 11)


def test_an_outcome_before_the_answer_to_the_request_leaves_nothing_open() -> None:
    books = Books()
    books.ask(5)
    books.ledger.on_event(event(11, "done", "mine-5", reason="error", error={"code": "worker_exited"}))
    books.ledger.on_accepted(5, {"accepted_at": 8.0})
    assert books.ledger.accepted_numbers == {}


def test_events_of_others_are_passed_over_and_those_of_workers_are_recorded() -> None:
    books = Books()
    books.ledger.on_event(event(1, "done", "yours-5", reason="completed"))
    assert books.facts == []
    books.ledger.on_event(event(2, "worker_exited", None, session="", worker="w3", cause="crashed", error="gone"))
    assert books.facts == [PoolEvent(t=1.0, what="worker_exited", worker="w3", session="", why="crashed", at=9.0)]


def test_an_event_that_comes_again_is_out_of_order() -> None:
    books = Books()
    books.ledger.on_event(event(5, "session_bound", None, worker="w1"))
    books.ledger.on_event(event(5, "session_bound", None, worker="w1"))
    assert [type(fact) for fact in books.facts] == [PoolEvent, DirectViolation, PoolEvent]


def test_what_a_later_life_knows_and_does_not_know_of_a_request() -> None:
    books = Books()
    books.ask(5)
    books.ledger.on_outcome(5, {"status": "timeout"})
    assert 5 in books.ledger.open
    books.ledger.on_unknown(5, ErrorBody("usage"))
    assert 5 not in books.ledger.open
    assert [type(fact).__name__ for fact in books.facts[1:]] == ["OutcomeRemembered", "RequestForgotten"]


def test_an_error_that_answers_the_question_for_an_outcome_is_none_of_the_request() -> None:
    books = Books()
    books.ask(5)
    books.ledger.on_unknown(5, ErrorBody("pool_closed"))
    assert 5 in books.ledger.open
    assert [type(fact).__name__ for fact in books.facts] == ["RequestAsked"]


def test_what_happens_is_counted_in_the_second_in_which_it_happens() -> None:
    story = Story()
    for number in range(3):
        story.ask(number)
    story.processes(1, 2, rss=1000, fds=7)
    story.begin(0)
    story.t = 1.5
    story.answer(0)
    story.hit("w1")
    story.fail(1, "worker_exited")
    meter = RunMetrics(0.0, 1.6)
    for fact in story.facts:
        meter.observe(fact)
    meter.finish()
    first, second = meter.series
    assert (first.asked, first.answered, first.waiting, first.running) == (3, 0, 2, 1)
    assert (first.workers, first.rss, first.fds) == (2, 1000, 7)
    assert (second.answered, second.failed, second.faults, second.waiting, second.running) == (1, 1, 1, 1, 0)
    assert meter.fates == {"completed": 1, "error: worker_exited": 1}
    assert meter.latencies.count == meter.calm_latencies.count == 1
    assert 1.3 < meter.latencies.p99 < 1.5  # beyond the 0.1 s of its turn


def test_seconds_in_which_nothing_happened_are_in_the_series_too() -> None:
    meter = RunMetrics(0.0, 0.0)
    meter.observe(SupervisorStarted(t=0.1, life=1, supervisor=1))
    meter.observe(ProcessSample(t=4.2, life=1, supervisor=1, workers=()))
    assert [second.second for second in meter.series] == [0, 1, 2, 3]


def test_of_a_status_document_what_is_judged_is_read() -> None:
    worker = {"id": "w1", "pid": 7, "profile": "ab", "state": "idle", "session": None, "turns": 3, "rss": 5}
    document = {
        "pool": {"max": 4, "mode": "running", "idle": 1},
        "counters": {"grants": {"exact": 2, "bound": 3}, "releases": 4, "lost": 0, "active": 1, "parked": 9},
        "workers": [worker],
        "waiting": [{"request": "r1", "session": "s", "profile": "ab", "why": "busy", "state": "queued"}],
    }
    figures = read_status(document, t=1.0, life=2, before=(7,), after=(7, 8))
    assert (figures.grants, figures.max, figures.life) == (5, 4, 2)
    assert (figures.workers[0].pid, figures.waiting[0].request, figures.after) == (7, "r1", (7, 8))


def test_transcripts_tell_where_each_prompt_stands_and_how_often(tmp_path: Path) -> None:
    def line(role: str, *numbers: int) -> str:
        text = " ".join(map(NONCES.word, numbers))
        return msgspec.json.encode({"type": "message", "message": {"role": role, "content": text}}).decode() + "\n"

    (tmp_path / "ada.jsonl").write_text(line("user", 1) + line("assistant", 1, 2) + line("user", 2) + line("user", 2))
    (tmp_path / "bob.jsonl").write_text(line("user", 3) + line("user", 1) + line("user", 4).rstrip("\n"))
    (tmp_path / "set-aside.jsonl").write_text(line("user", 5))
    owners = {str(tmp_path / "ada.jsonl"): "ada", str(tmp_path / "bob.jsonl"): "bob"}
    sessions = {1: "ada", 2: "ada", 3: "bob", 4: "bob", 5: "cy"}
    found = list(read_transcripts(tmp_path, owners, sessions, NONCES, 1.0))
    assert [(fact.own, fact.foreign) for fact in found] == [(1, 1), (2, 0), (1, 0), (0, 0), (1, 0)]
    assert all(isinstance(fact, PromptOccurrences) for fact in found)
    mine = read_transcripts(None, owners, {5: "cy"}, NONCES, 1.0)
    assert [(fact.own, fact.foreign) for fact in mine] == [(0, 0)]


def test_a_prompt_is_found_in_its_parts_also_where_its_word_begins_a_line(tmp_path: Path) -> None:
    parts = [{"type": "image", "data": "xyz"}, {"type": "text", "text": f"DELAY=7\n{NONCES.word(1)}"}]
    line = msgspec.json.encode({"type": "message", "message": {"role": "user", "content": parts}})
    (tmp_path / "ada.jsonl").write_bytes(line + b"\n")
    (found,) = read_transcripts(tmp_path, {str(tmp_path / "ada.jsonl"): "ada"}, {1: "ada"}, NONCES, 1.0)
    assert (found.own, found.foreign) == (1, 0)


def test_the_settings_file_says_what_the_judges_go_by() -> None:
    plan = make_plan(StressOptions(scale=1 / 20))
    table = tomllib.loads(settings_text(plan, []))
    limits = PoolLimits(**{name: table["pool"][name] for name in PoolLimits.__struct_fields__})
    assert limits == own_limits(plan)
