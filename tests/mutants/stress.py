"""Guards of the judges: a judge that sees nothing would call every pool a good one."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_JUDGES = "tests/stress/test_judges.py"
_OUTCOMES = "tests/stress/test_judges_of_outcomes.py"
_OF_THE_POOL = "tests/stress/test_judges_of_the_pool.py"

MUTANTS = (
    Mutant(
        keeps="I1",
        without="a request that nobody ever answered is no loss",
        file="stress/checker/requests.py",
        old="                yield _name_forgotten(fact, book.entries.get(fact.number))",
        new="                pass",
        tests=(f"{_JUDGES}::test_a_request_that_is_never_answered_is_lost",),
    ),
    Mutant(
        keeps="I1",
        without="a turn that nobody has seen begin counts as completed",
        file="stress/checker/requests.py",
        old="            if entry.started is None and entry.life in (0, book.life):",
        new="            if entry.started is None and entry.life < 0:",
        tests=(f"{_JUDGES}::test_a_request_that_is_completed_has_begun",),
    ),
    Mutant(
        keeps="I1",
        without="any fault ever explains a damaged transcript",
        file="stress/checker/requests.py",
        old="            return book.may_be_damaged(entry.asked.session)",
        new="            return True",
        tests=(f"{_OUTCOMES}::test_a_transcript_that_no_fault_was_near_has_no_reason_to_be_damaged",),
    ),
    Mutant(
        keeps="I2",
        without="words of another session pass",
        file="stress/checker/requests.py",
        old="        foreign = [other for other in fact.said if book.sessions.get(other) != session]",
        new="        foreign: list[int] = []",
        tests=(f"{_JUDGES}::test_a_word_of_another_session_is_found_in_an_answer",),
    ),
    Mutant(
        keeps="I3",
        without="workers are not counted",
        file="stress/checker/workers.py",
        old="            if len(fact.workers) > self.rules.max_workers:",
        new="            if len(fact.workers) > 10 * self.rules.max_workers:",
        tests=(f"{_OF_THE_POOL}::test_one_worker_too_many_is_counted",),
    ),
    Mutant(
        keeps="I4",
        without="what outlives its supervisor is passed over",
        file="stress/checker/supervisor.py",
        old="                if fact.pids:",
        new="                if len(fact.pids) > 100:",
        tests=(f"{_OF_THE_POOL}::test_a_process_that_outlives_its_supervisor_is_found",),
    ),
    Mutant(
        keeps="I4",
        without="a supervisor may end in any way once it is told to",
        file="stress/checker/supervisor.py",
        old="                elif fact.code not in _codes_after(fact.signals):",
        new="                elif fact.code > 255:",
        tests=(f"{_OF_THE_POOL}::test_a_supervisor_ends_only_when_it_is_told_to_and_in_good_order",),
    ),
    Mutant(
        keeps="I5",
        without="who came later may be served first",
        file="stress/checker/waiters.py",
        old="        if heap and heap[0][0] + slack < key:",
        new="        if heap and heap[0][0] + 1000 * slack < key:",
        tests=(f"{_JUDGES}::test_who_came_later_is_not_served_first",),
    ),
    Mutant(
        keeps="I5",
        without="two turns of a session may run at once",
        file="stress/checker/waiters.py",
        old="            if other.started is not None:\n",
        new="            if other.started is not None:\n                continue\n            if other.started:\n",
        tests=(f"{_JUDGES}::test_turns_of_a_session_are_one_after_the_other_in_the_order_of_their_requests",),
    ),
    Mutant(
        keeps="I6",
        without="nobody looks at deadlines",
        file="stress/checker/waiters.py",
        old="        if late > self.rules.deadline_grace",
        new="        if late > 1000 + self.rules.deadline_grace",
        tests=(f"{_JUDGES}::test_a_waiter_that_is_told_too_late_was_forgotten_for_a_while",),
    ),
    Mutant(
        keeps="I7",
        without="the supervisor may grow for ever",
        file="stress/checker/supervisor.py",
        old="        if last > warm * self.rules.rss_growth:",
        new="        if last > 100 * warm * self.rules.rss_growth:",
        tests=(f"{_OF_THE_POOL}::test_growth_after_the_warm_up_is_no_steady_state",),
    ),
    Mutant(
        keeps="I8",
        without="nobody looks whom the supervisor takes a worker from",
        file="stress/checker/workers.py",
        old=" and fact.what in _TAKINGS and fact.why in _OWN_WISHES:",
        new=" and fact.what in _TAKINGS and fact.why in ():",
        tests=(f"{_OF_THE_POOL}::test_a_worker_that_is_taken_away_in_mid_turn_is_noticed",),
    ),
    Mutant(
        keeps="I9",
        without="a look that still has the killed worker settles what is owed for it",
        file="stress/checker/workers.py",
        old=" or any(worker.pid == pid for worker in fact.workers)",
        new="",
        tests=(f"{_OF_THE_POOL}::test_a_killed_worker_that_is_seen_once_more_is_missed_all_the_same",),
    ),
    Mutant(
        keeps="I10",
        without="grants may be lost count of",
        file="stress/checker/workers.py",
        old="        if fact.grants != fact.releases + fact.lost + fact.active:",
        new="        if fact.grants < 0:",
        tests=(f"{_OF_THE_POOL}::test_a_grant_that_is_neither_released_nor_in_force_was_lost_count_of",),
    ),
    Mutant(
        keeps="I11",
        without="a stranger may be signalled",
        file="stress/checker/supervisor.py",
        old="            if fact.signalled:",
        new="            if fact.signalled and fact.pid < 0:",
        tests=(f"{_OF_THE_POOL}::test_a_signal_that_met_a_stranger_is_no_small_thing",),
    ),
    Mutant(
        keeps="I12",
        without="a fault on one worker explains failures on another",
        file="stress/checker/neighbours.py",
        old="            if not self._explains(fact.code, entry, book):",
        new="            if not book.faults and not self._explains(fact.code, entry, book):",
        tests=(f"{_OF_THE_POOL}::test_a_failure_on_a_worker_to_which_nothing_was_done_came_from_a_neighbour",),
    ),
)
