"""Any history at all: due times are counted out one by one, and every run is held against them."""

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from errors import Conflict
from heartbeat.cron.jobs import ActiveRun, CronJob, CronRunResult, CronRunStatus
from heartbeat.cron.machine import BACKOFF, ReportFailure, StartRun
from heartbeat.cron.schedule import At, Cron, Every
from heartbeat.cron.settings import JobMode
from tests.heartbeat.cron.machines import BEGIN, Paper, make_cron_job

NAMES = ("a", "b", "c")
SCHEDULES = st.sampled_from(
    (
        *(Every(7.0, BEGIN), Every(30.0, BEGIN + 3.0), Every(600.0, BEGIN)),
        *(At(BEGIN + 50.0), At(BEGIN + 500.0), At(BEGIN + 4000.0)),
        *(Cron("*/2 * * * *"), Cron("*/20 * * * * *"), Cron("5 * * * *")),
    )
)
_MINUTES = {"*/2 * * * *": range(0, 60, 2), "5 * * * *": (5,)}
"""What the expressions above mean, in words of their own."""
STATUSES = st.sampled_from(
    (CronRunStatus.OK, CronRunStatus.OK, CronRunStatus.FAILED, CronRunStatus.REFUSED, CronRunStatus.INTERRUPTED)
)


class _Ledger:
    """One job as the world sees it: what it owes, and what has become of that."""

    def __init__(self, job: CronJob, now: float) -> None:
        self.job = job
        self.counted = now
        self.owed: list[float] = []
        self.failures = 0
        self.hold = 0.0
        self.is_over = False

    def count(self, now: float) -> None:
        """Every due time up to now, one by one."""
        while (due := self._next()) is not None and due <= now:
            self.owed.append(due)
            self.counted = due
        self.counted = max(self.counted, now)

    def _next(self) -> float | None:
        schedule = self.job.schedule
        match schedule:
            case At(when):
                return when if when > self.counted else None
            case Every(period, anchor):
                steps = (self.counted - anchor) // period
                return anchor + (steps + 1) * period
            case Cron():
                step = 20 if len(schedule.expression.split()) == 6 else 60
                second = (int(self.counted) // step + 1) * step
                while schedule.expression in _MINUTES and second // 60 % 60 not in _MINUTES[schedule.expression]:
                    second += step
                return float(second)

    def settle(self, now: float) -> None:
        """What was owed by now has been dealt with."""
        self.owed = [due for due in self.owed if due > now]


class CronHistory(RuleBasedStateMachine):
    """Rules are what can happen; the checks are what scheduled tasks promise."""

    @initialize(max_running=st.integers(1, 3))
    def begin(self, max_running: int) -> None:
        self.paper = Paper(max_running)
        self.books: dict[str, _Ledger] = {}
        self.tickets: dict[str, tuple[str, ActiveRun]] = {}
        """Isolated runs whose jobs are as they were when these began."""
        self.spent: set[tuple[str, float]] = set()
        self.seen = 0
        self.latest = BEGIN

    @rule(
        name=st.sampled_from(NAMES),
        schedule=SCHEDULES,
        mode=st.sampled_from((JobMode.ISOLATED, JobMode.ISOLATED, JobMode.MAIN)),
        enabled=st.sampled_from((True, True, True, False)),
        once=st.sampled_from((False, False, True)),
    )
    def put(self, name: str, schedule: Every | At | Cron, mode: JobMode, enabled: bool, once: bool) -> None:  # noqa: FBT001  # by name
        job = make_cron_job(name, schedule, mode=mode, enabled=enabled, delete_after_run=once)
        known = self.books.get(name)
        if known is not None and known.job.schedule == schedule:
            if enabled and not known.job.enabled:  # what fell due while it was off has passed
                known.settle(self.paper.now)
            known.job = job
        else:
            self.books[name] = _Ledger(job, self.paper.now)
            self.tickets = {run: held for run, held in self.tickets.items() if held[0] != name}
            self.spent = {(other, due) for other, due in self.spent if other != name}
        self.paper.put(job)
        self._look()

    @precondition(lambda self: self.books)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.books)))
        self.paper.remove(name)
        self._drop(name)

    @rule(by=st.sampled_from((0.0, 0.5, 1.0, 7.0, 30.0, 90.0, 1000.0, 4000.0)))
    def pass_time(self, by: float) -> None:
        self._pass(by)
        self.paper.tick()
        self._look()

    @rule(by=st.floats(1.0, 3600.0))
    def set_the_clock_back(self, by: float) -> None:
        """Never so far that the machine holds the time before for a mistake."""
        self.latest = max(self.latest, self.paper.now)
        self.paper.now = max(self.paper.now - by, self.latest - 2.9 * 3600.0)
        self.paper.tick()
        self._look()

    @rule(by=st.sampled_from((0.0, 5.0, 500.0, 20_000.0)))
    def be_killed_and_come_back(self, by: float) -> None:
        self._pass(by)
        mains = {name for name, book in self.books.items() if book.job.mode is JobMode.MAIN}
        self.paper.restart()
        self.tickets = {run: held for run, held in self.tickets.items() if held[0] not in mains}
        assert self.paper.open.keys() == {run for run, held in self.tickets.items() if self._is_held(run, held)}
        self._look()

    def _is_held(self, run: str, held: tuple[str, ActiveRun]) -> bool:
        state = self.paper.states.get(held[0])
        return state is not None and state.running is not None and state.running.run == run

    @precondition(lambda self: self.paper.open)
    @rule(data=st.data(), status=STATUSES)
    def end(self, data: st.DataObject, status: CronRunStatus) -> None:
        run = data.draw(st.sampled_from(sorted(self.paper.open)))
        start = self.paper.open.pop(run)
        self._book_end(run, status)
        self.paper._perform(
            self.paper.machine.ended(start.job.id, run, CronRunResult(status, error=status.value), self.paper.now)
        )
        self._look()

    @precondition(lambda self: self.books)
    @rule(data=st.data())
    def run_by_hand(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.books)))
        busy = any(start.job.id == name for start in self.paper.open.values())
        waits = self.paper.machine.status(name).is_waiting
        try:
            self.paper.run_now(name)
        except Conflict:
            assert busy or waits
        else:
            assert not busy
            assert not waits
        self._look()

    def _pass(self, by: float) -> None:
        self.paper.now += by
        for book in self.books.values():
            book.count(self.paper.now)

    def _drop(self, name: str) -> None:
        del self.books[name]
        self.tickets = {run: held for run, held in self.tickets.items() if held[0] != name}
        self.spent = {(other, due) for other, due in self.spent if other != name}

    def _look(self) -> None:
        """Hold every run that has begun since against the books."""
        for name, ticket in self.paper.begun[self.seen :]:
            self._book_start(name, ticket)
        self.seen = len(self.paper.begun)
        for name in [name for name in self.books if name not in self.paper.machine]:
            self._drop(name)

    def _book_start(self, name: str, ticket: ActiveRun) -> None:
        book, now = self.books[name], self.paper.now
        if ticket.due is not None:
            assert book.job.enabled
            assert not book.is_over
            assert book.owed, f"{name} owed no run"
            assert ticket.due == book.owed[0], "the first that was missed"
            assert ticket.due <= max(now, self.latest)
            assert now >= book.hold, "within the back-off"
            assert (name, ticket.due) not in self.spent, "a due time runs at most once"
            self.spent.add((name, ticket.due))
            book.settle(max(now, ticket.due))
        if book.job.mode is JobMode.ISOLATED:
            self.tickets[ticket.run] = (name, ticket)
        else:
            self._close(book, ticket, CronRunStatus.OK)

    def _book_end(self, run: str, status: CronRunStatus) -> None:
        if run in self.tickets:
            name, ticket = self.tickets.pop(run)
            self._close(self.books[name], ticket, status)

    def _close(self, book: _Ledger, ticket: ActiveRun, status: CronRunStatus) -> None:
        now, name = self.paper.now, book.job.id
        if status is CronRunStatus.OK:
            book.failures, book.hold = 0, 0.0
            book.is_over = book.is_over or (ticket.due is not None and book.job.delete_after_run)
        elif status is not CronRunStatus.INTERRUPTED:
            book.hold = now + BACKOFF[min(book.failures, len(BACKOFF) - 1)]
            book.failures += 1
        if ticket.due is None or status is CronRunStatus.INTERRUPTED:
            return
        if status is CronRunStatus.REFUSED:
            self.spent.discard((name, ticket.due))
            book.owed.append(ticket.due)
            fresh = _Ledger(book.job, ticket.since)
            fresh.count(max(book.counted, now))
            book.owed = fresh.owed
        else:
            book.settle(now)

    @invariant()
    def no_job_overlaps_with_itself_and_the_limit_holds(self) -> None:
        names = [start.job.id for start in self.paper.open.values()]
        assert len(names) == len(set(names))
        assert len(names) <= self.paper.max_running
        assert self.paper.machine.running == len(names)

    @invariant()
    def nothing_that_is_owed_is_forgotten(self) -> None:
        """Once everything due has come up, who owes a run runs, waits, holds back, is off or is over."""
        self.paper.tick()
        self._look()
        now, room = self.paper.now, self.paper.machine.running < self.paper.max_running
        for name, book in self.books.items():
            standing = self.paper.machine.status(name)
            runs = any(start.job.id == name for start in self.paper.open.values())
            is_excused = runs or standing.is_waiting or not book.job.enabled or book.is_over or book.hold > now
            assert is_excused or not [due for due in book.owed if due <= now], name
            assert not (standing.is_waiting and room), "it could begin"
            assert standing.state.failures == book.failures
            assert standing.state.hold_until == book.hold, "the back-off is exact"

    @invariant()
    def the_alarm_is_set_for_the_next_run_and_no_sooner(self) -> None:
        for name, book in self.books.items():
            standing = self.paper.machine.status(name)
            if standing.next_due is not None:
                assert standing.next_due > self.paper.now
                owed = [due for due in book.owed if due <= self.paper.now]
                assert not owed or standing.next_due == book.hold, name

    @invariant()
    def only_what_went_wrong_is_reported(self) -> None:
        for report in self.paper.reported:
            assert isinstance(report, ReportFailure)
            assert report.outcome.status is not CronRunStatus.OK
        assert all(isinstance(start, StartRun) for start in self.paper.open.values())


CronHistory.TestCase.settings = hypothesis_settings(max_examples=40, stateful_step_count=40)
TestCronHistory = CronHistory.TestCase
