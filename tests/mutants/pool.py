"""Guards of the machine that decides which worker serves whom."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        keeps="I3",
        without="one process too many is started",
        file="pool/starts.py",
        old="        if len(state.workers) >= settings.max:",
        new="        if len(state.workers) > settings.max:",
        tests=("tests/pool/test_machine.py::test_the_waiter_whose_worker_was_taken_by_a_better_one_gets_another",),
    ),
    Mutant(
        keeps="I3",
        without="a profile has more workers than it may",
        file="pool/starts.py",
        old="kind.live >= settings.max_per_profile:",
        new="kind.live > settings.max_per_profile:",
        tests=("tests/pool/test_machine_limits.py::test_max_per_profile_holds_back_one_profile_only",),
    ),
    Mutant(
        keeps="I3",
        without="an agent has more workers than it may",
        file="pool/starts.py",
        old=("kind.agent.live >= settings.max_per_agent:\n            return kind.agent.gate"),
        new=("kind.agent.live > settings.max_per_agent:\n            return kind.agent.gate"),
        tests=("tests/pool/test_machine_limits.py::test_max_per_agent_evicts_within_the_agent",),
    ),
    Mutant(
        keeps="I3",
        without="new limits leave the workers above them alone",
        file="pool/machine.py",
        old="        self._fleet.shed()\n",
        new="",
        tests=(
            "tests/pool/test_machine_limits.py::test_a_lower_max_stops_available_workers_now_and_held_ones_at_their_turn_boundary",
        ),
    ),
    Mutant(
        keeps="I9",
        without="starts cost no token",
        file="pool/starts.py",
        old="        state.bucket.take(state.now)\n",
        new="",
        tests=("tests/pool/test_machine_limits.py::test_starts_are_limited_by_the_bucket_and_go_on_when_it_fills",),
    ),
    Mutant(
        keeps="I9",
        without="a lost worker is not started again",
        file="pool/fleet.py",
        old=("        if owed:\n            self._starts.owe(kind)\n"),
        new="",
        tests=("tests/pool/test_machine_failures.py::test_a_sick_worker_is_stopped_and_started_again_even_above_min",),
    ),
    Mutant(
        keeps="I9",
        without="a failed start is tried again at once",
        file="pool/budget.py",
        old="            return now >= self.retry_at",
        new="            return True",
        tests=("tests/pool/test_machine_failures.py::test_a_failed_start_is_stopped_and_tried_again_after_back_off",),
    ),
    Mutant(
        keeps="I9",
        without="the breaker never opens",
        file="pool/budget.py",
        old=("len(self._failures) < settings.breaker_failures:\n            return False"),
        new=("True:\n            return False"),
        tests=(
            "tests/pool/test_machine_failures.py::test_five_failed_starts_break_the_profile_and_its_waiters_learn_why",
        ),
    ),
    Mutant(
        keeps="I9",
        without="a half-open breaker lets everybody through",
        file="pool/budget.py",
        old="BreakerState.HALF_OPEN and not self._trial\n",
        new="BreakerState.HALF_OPEN\n",
        tests=(
            "tests/pool/test_machine_failures.py::test_half_open_lets_one_trial_through_which_closes_the_breaker_when_it_is_ready",
        ),
    ),
    Mutant(
        keeps="I9",
        without="a replacement is not started before its worker retires",
        file="pool/fleet.py",
        old="        if why in _REPLACED and not worker.replaced and",
        new="        if False and",
        tests=(
            "tests/pool/test_machine_upkeep.py::test_a_worker_retires_after_max_turns_once_its_replacement_is_ready",
        ),
    ),
    Mutant(
        keeps="I8",
        without="a session the gateway calls busy is moved",
        file="pool/records.py",
        old="return bool(self.holds) or self.busy",
        new="return bool(self.holds)",
        tests=("tests/pool/test_machine.py::test_a_bound_worker_that_does_not_fit_ends_its_turn_first",),
    ),
    Mutant(
        keeps="I8",
        without="a session that is held is moved",
        file="pool/records.py",
        old="return bool(self.holds) or self.busy",
        new="return self.busy",
        tests=("tests/pool/test_machine.py::test_two_requests_of_one_session_hold_its_worker_together",),
    ),
    Mutant(
        keeps="I8",
        without="a session with commands in the background is moved",
        file="pool/records.py",
        old="return not self.in_use and (self.worker is None or self.worker.background == 0)",
        new="return not self.in_use",
        tests=("tests/pool/test_machine.py::test_no_worker_in_the_middle_of_something_is_rebound_or_evicted",),
    ),
    Mutant(
        keeps="I8",
        without="a drained pool stops workers in use",
        file="pool/machine.py",
        old="StopReason.DRAINED, lambda worker: not worker.in_use)",
        new="StopReason.DRAINED, lambda _: True)",
        tests=("tests/pool/test_machine_end.py::test_draining_refuses_waiters_stops_idle_workers_and_lets_holds_end",),
    ),
    Mutant(
        keeps="I2",
        without="a reset that is not verified counts as one of another session",
        file="pool/leases.py",
        old=" or session.key != key:",
        new=":",
        tests=(
            "tests/pool/test_machine_waiting.py::test_a_reset_that_was_made_for_another_session_grants_nobody_the_worker",
        ),
    ),
    Mutant(
        keeps="I2",
        without="a worker that was altered serves others",
        file="pool/records.py",
        old=("        if self.altered:\n            return True\n"),
        new="",
        tests=("tests/pool/test_altered.py::test_another_session_gets_a_new_one_in_its_place",),
    ),
    Mutant(
        keeps="I2",
        without="a transcript is opened while its old process may still write it",
        file="pool/fleet.py",
        old=(
            "        for session in (worker.session, worker.closing):\n"
            "            if session is not None and session.worker is worker:\n"
            "                self.parked(session)\n"
        ),
        new="        pass\n",
        tests=(
            "tests/pool/test_machine.py::test_a_bound_worker_that_does_not_fit_is_stopped_first_and_the_session_resumes_on_another",
        ),
    ),
    Mutant(
        keeps="I2",
        without="a resumed conversation begins anew",
        file="pool/leases.py",
        old="state.actions.append(Reset(worker.id, session.key, session.transcript))",
        new="state.actions.append(Reset(worker.id, session.key, None))",
        tests=(
            "tests/pool/test_machine.py::test_a_bound_worker_that_does_not_fit_is_stopped_first_and_the_session_resumes_on_another",
        ),
    ),
    Mutant(
        keeps="I1",
        without="a stale hold releases another's",
        file="pool/leases.py",
        old="        if held.hold != hold:",
        new="        if False:",
        tests=(
            "tests/pool/test_machine_waiting.py::test_every_grant_has_a_higher_generation_and_a_stale_hold_is_refused",
        ),
    ),
    Mutant(
        keeps="I1",
        without="a hold that was never given can be released",
        file="pool/leases.py",
        old="            if state.lost.get(hold.request) != hold.generation:",
        new="            if False:",
        tests=(
            "tests/pool/test_machine_waiting.py::test_every_grant_has_a_higher_generation_and_a_stale_hold_is_refused",
        ),
    ),
    Mutant(
        keeps="I1",
        without="a request id is used twice at the same time",
        file="pool/machine.py",
        old="        if request in state.requests or request in state.holds or request in state.lost:",
        new="        if False:",
        tests=("tests/pool/test_machine_waiting.py::test_a_request_id_in_use_is_refused_without_harm",),
    ),
    Mutant(
        keeps="I1",
        without="the holds of a dead worker stay in force",
        file="pool/fleet.py",
        old=("        self._lose_holds(worker)\n        state.move"),
        new="        state.move",
        tests=("tests/pool/test_machine_failures.py::test_a_hold_whose_worker_died_may_be_released_once",),
    ),
    Mutant(
        keeps="I1",
        without="a session whose transcript is broken is tried for ever",
        file="pool/fleet.py",
        old="        if session.resume_failures < _MAX_RESUME_FAILURES:",
        new="        if True:",
        tests=("tests/pool/test_machine_failures.py::test_two_failed_resumes_fail_the_session_and_not_the_profile",),
    ),
    Mutant(
        keeps="I5",
        without="a waiter of another profile is starved",
        file="pool/pump.py",
        old="        if rival is not None and rival.key + state.settings.age_step < best.key:",
        new="        if False:",
        tests=("tests/pool/test_machine.py::test_a_busy_profile_does_not_starve_the_others_beyond_one_age_step",),
    ),
    Mutant(
        keeps="I5",
        without="waiting makes nobody more important",
        file="pool/state.py",
        old="waiter.key = self.now - acquire.priority * settings.age_step",
        new="waiter.key = -acquire.priority * settings.age_step",
        tests=("tests/pool/test_machine.py::test_a_busy_profile_does_not_starve_the_others_beyond_one_age_step",),
    ),
    Mutant(
        keeps="I5",
        without="who came last of equals is served first",
        file="pool/state.py",
        old="self.now, self.sequence\n",
        new="self.now, -self.sequence\n",
        tests=("tests/pool/test_machine.py::test_a_freed_worker_goes_to_the_best_waiter_it_matches",),
    ),
    Mutant(
        keeps="I5",
        without="who does not wait goes before those who do",
        file="pool/placing.py",
        old="state.mode is not Mode.RUNNING or waiter.kind.queued or not (",
        new="state.mode is not Mode.RUNNING or not (",
        tests=("tests/pool/test_machine.py::test_an_acquire_that_may_not_wait_never_overtakes_those_who_do",),
    ),
    Mutant(
        keeps="I5",
        without="the reserve is given to anybody",
        file="pool/state.py",
        old="        return waiter.privileged or worker.ordinary > 0 or self.quota_open",
        new="        return True",
        tests=(
            "tests/pool/test_machine_limits.py::test_a_quiet_session_of_its_own_waits_for_the_reserve_too_and_in_order",
        ),
    ),
    Mutant(
        keeps="I5",
        without="a nested run waits for its own ancestor",
        file="pool/pump.py",
        old="        if waiting.nested:\n",
        new="        if False:\n",
        tests=(
            "tests/pool/test_machine_limits.py::test_a_nested_run_fails_at_once_where_it_would_wait_for_its_ancestor",
        ),
    ),
    Mutant(
        keeps="I6",
        without="what is due waits for a tick",
        file="pool/machine.py",
        old="        if state.timers.fire(state.now):",
        new="        if isinstance(stimulus, stimuli.Tick) and state.timers.fire(state.now):",
        tests=(
            "tests/pool/test_machine_waiting.py::test_a_waiter_past_its_deadline_is_not_granted_even_if_the_tick_is_late",
        ),
    ),
    Mutant(
        keeps="I6",
        without="a waiter outlives its deadline",
        file="pool/state.py",
        old="            if waiter.deadline < math.inf:",
        new="            if False:",
        tests=(
            "tests/pool/test_machine_waiting.py::test_a_waiter_ends_by_its_deadline_and_the_machine_asks_to_be_woken_for_it",
        ),
    ),
    Mutant(
        keeps="I6",
        without="nobody wakes the pool when a token comes",
        file="pool/starts.py",
        old="            state.timers.at(due, _nothing, None)\n",
        new="            pass\n",
        tests=("tests/pool/test_machine_limits.py::test_starts_are_limited_by_the_bucket_and_go_on_when_it_fills",),
    ),
    Mutant(
        keeps="I6",
        without="who was covered by a worker that failed is forgotten",
        file="pool/starts.py",
        old=(
            "        self._state.claims -= worker.state is WorkerState.STOPPING\n        self._state.waiting.wake(kind)"
        ),
        new="        self._state.claims -= worker.state is WorkerState.STOPPING",
        tests=("tests/pool/test_machine.py::test_no_worker_in_the_middle_of_something_is_rebound_or_evicted",),
    ),
    Mutant(
        keeps="I6",
        without="blocked requests of a session are forgotten",
        file="pool/leases.py",
        old=(
            "        if session.waiting:\n"
            "            self.settle(session)\n"
            "        self._fleet.refresh(worker)\n"
            "\n"
            "    # --- failures"
        ),
        new=("        self._fleet.refresh(worker)\n\n    # --- failures"),
        tests=(
            "tests/pool/test_machine.py::test_a_running_turn_keeps_its_model_and_the_other_request_waits_for_the_boundary",
        ),
    ),
    Mutant(
        keeps="I7",
        without="the waiting list has no end",
        file="pool/placing.py",
        old="state.waiting.bounded >= state.settings.waiting_capacity",
        new="False",
        tests=(
            "tests/pool/test_machine_waiting.py::test_a_full_list_refuses_with_a_hint_when_to_come_again_and_the_pools_figures",
        ),
    ),
    Mutant(
        keeps="I7",
        without="cancelled timers stay",
        file="pool/timers.py",
        old="        if self._cancelled > _COMPACT_FROM and self._cancelled * 2 > len(self._heap):",
        new="        if False:",
        tests=("tests/pool/test_timers.py::test_cancelled_timers_do_not_pile_up",),
    ),
    Mutant(
        keeps="I7",
        without="profiles are never forgotten",
        file="pool/state.py",
        old=("        if waiter.kind.idle:\n            self.prune(waiter.kind)\n"),
        new="",
        tests=(
            "tests/pool/test_machine_upkeep.py::test_a_failing_profile_is_forgotten_only_after_its_failures_are_too_old",
        ),
    ),
    Mutant(
        keeps="I7",
        without="a profile whose breaker opened is never forgotten",
        file="pool/budget.py",
        old="            self.state is not BreakerState.OPEN\n",
        new="            self.state is BreakerState.CLOSED\n",
        tests=("tests/pool/test_machine_upkeep.py::test_so_is_one_whose_breaker_opened_and_that_nobody_tried_again",),
    ),
    Mutant(
        keeps="I7",
        without="idle workers stay for ever",
        file="pool/fleet.py",
        old="        self.reclaim()\n        if worker in state.index:\n",
        new="        if worker in state.index:\n",
        tests=(
            "tests/pool/test_machine_idle.py::test_an_idle_worker_above_min_is_stopped_after_idle_timeout_and_min_stays",
        ),
    ),
    Mutant(
        keeps="I10",
        without="a lost hold is not counted",
        file="pool/fleet.py",
        old="            state.counters.lost += 1\n",
        new="",
        tests=("tests/pool/test_machine_failures.py::test_a_hold_whose_worker_died_may_be_released_once",),
    ),
    Mutant(
        keeps="I10",
        without="an illegal move is made",
        file="pool/tables.py",
        old="    if new not in moves[old]:",
        new="    if False:",
        tests=("tests/pool/test_waiting.py::test_an_ended_waiter_cannot_move_any_more",),
    ),
    Mutant(
        keeps="I12",
        without="a worker proven by nobody counts against nobody",
        file="pool/machine.py",
        old=(
            "        if not worker.proven and worker.failure is not FailureKind.RESUME:\n"
            "            self._starts.charge(worker, failed.error)\n"
        ),
        new="",
        tests=("tests/pool/test_machine_limits.py::test_a_nested_run_is_refused_when_what_was_on_its_way_is_lost",),
    ),
)
