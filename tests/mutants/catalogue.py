"""The guards that are taken out, by room: each promise at least once, and the rooms' most expensive mistakes."""

from tests.mutants.acp import ACP_DOOR, ACP_WORKERS
from tests.mutants.cluster import CLUSTER
from tests.mutants.mutant import Mutant

_POOL = (
    Mutant(
        "I3",
        "one process too many is started",
        "pool/spawning.py:Spawner._blocking_condition_at",
        "len(state.workers) >= state.places.limit",
        "len(state.workers) > state.places.limit",
        ("tests/pool/test_machine.py::test_the_machine_decides_as_the_transcript_says",),
    ),
    Mutant(
        "I3",
        "a worker is started in a group without a free slot",
        "pool/spawning.py:Spawner._blocking_condition_at",
        "place.live >= place.slots",
        "place.live > place.slots",
        ("tests/pool/test_machine_places.py::test_places_decide_as_the_transcript_says",),
    ),
    Mutant(
        "I9",
        "a failed start is tried again at once",
        "pool/budget.py:StartBudget.may_start",
        "now >= self.retry_at",
        "True",
        ("tests/pool/test_machine_failures.py::test_the_machine_answers_failures_as_the_transcript_says",),
    ),
    Mutant(
        "I8",
        "a session that the gateway calls busy is moved",
        "pool/records.py:WorkerRecord.in_use",
        " or session.busy",
        "",
        ("tests/pool/test_machine.py::test_the_machine_decides_as_the_transcript_says",),
    ),
    Mutant(
        "I2",
        "a reset for another session grants the worker",
        "pool/binding.py:SessionBinder.reset_done",
        " or session.key != key",
        "",
        ("tests/pool/test_machine.py::test_the_machine_decides_as_the_transcript_says",),
    ),
    Mutant(
        "I1",
        "a stale hold releases another's",
        "pool/binding.py:SessionBinder.release",
        "held.hold != hold",
        "False",
        ("tests/pool/test_machine.py::test_every_grant_has_a_higher_generation_and_a_stale_hold_is_refused",),
    ),
    Mutant(
        "I5",
        "a waiter of another profile is starved",
        "pool/scheduling.py:Scheduler._offer",
        "rival is not None and rival.sort_key + state.settings.age_step < best.sort_key:",
        "False:",
        ("tests/pool/test_machine.py::test_a_busy_profile_does_not_starve_the_others_beyond_one_age_step",),
    ),
    Mutant(
        "I6",
        "a waiter outlives its deadline",
        "pool/state.py:PoolState.register",
        "waiter.deadline < math.inf",
        "False",
        ("tests/pool/test_machine.py::test_the_machine_decides_as_the_transcript_says",),
    ),
    Mutant(
        "I7",
        "the waiting list has no end",
        "pool/admission.py:Admission._is_list_full",
        "",
        "return False",
        ("tests/pool/test_machine.py::test_a_full_list_refuses_with_a_hint_when_to_come_again_and_the_pools_figures",),
    ),
    Mutant(
        "I10",
        "a lost hold is not counted",
        "pool/workers.py:Workers._void_holds",
        "lost += 1",
        "lost += 0",
        ("tests/pool/test_machine_failures.py::test_a_hold_whose_worker_died_may_be_released_once",),
    ),
)
_RPC = (
    Mutant(
        "I1",
        "what may have been sent counts as not sent",
        "rpc/pipes.py:StdinQueue._record_sent",
        "if taken and",
        "if False and",
        (
            "tests/rpc/test_client.py::test_a_request_that_is_not_answered_in_time_fails_and_its_late_answer_goes_to_nobody",
        ),
    ),
    Mutant(
        "I12",
        "a worker's nonsense ends the supervisor",
        "rpc/client.py:RpcClient._receive",
        "except Exception as exc:",
        "except MemoryError as exc:",
        ("tests/rpc/test_client.py::test_a_worker_of_another_protocol_is_refused",),
    ),
    Mutant(
        "I11",
        "another process with the pid of a dead one is killed",
        "wire/procfs.py:ProcessRef.is_alive",
        "stat.start_time == self.start_time and",
        "",
        ("tests/rpc/test_hunt.py::test_a_noted_process_is_known_by_its_start_time",),
    ),
    Mutant(
        "I11",
        "a process without our marker is killed",
        "rpc/sweep.py:kill_listed",
        " and marker_of(stat.pid) == entry.marker",
        "",
        ("tests/rpc/test_orphans.py::test_a_stranger_with_a_dead_workers_pid_is_never_signalled",),
    ),
    Mutant(
        "I4",
        "descendants that hide their marker are left",
        "rpc/sweep.py:ProcessSweep._find_targets",
        "in descendants_of({target.pid for target in roots})",
        "in ()",
        ("tests/rpc/test_hunt.py::test_a_child_that_threw_its_marker_away_ends_with_its_marked_parent",),
    ),
    Mutant(
        "I7",
        "a worker's endless line is kept",
        "wire/framing.py:LineFramer._buffer",
        "self.violation is None and",
        "False and",
        ("tests/wire/test_framing.py::test_an_endless_line_is_refused_before_its_end_and_its_bytes_are_let_go",),
    ),
    Mutant(
        "private",
        "a worker inherits all variables of the supervisor",
        "rpc/spawn.py:worker_environment",
        "for name in settings.env_passthrough if name in base_env",
        "for name in base_env",
        ("tests/pool/test_launcher.py::test_a_worker_inherits_what_is_let_through_its_profile_and_its_marker_only",),
    ),
)
_GATEWAY = (
    Mutant(
        "durable",
        "an outcome is published before it is stored",
        "gateway/runs/registry.py:RunRegistry.settle",
        "self._bus.call_when_visible(seq, partial(self._settle, ended), is_last=ends_turn)",
        "self._settle(ended)",
        ("tests/gateway/test_durability.py::test_an_outcome_is_on_the_disk_before_anybody_is_told",),
    ),
    Mutant(
        "I1",
        "a run that had started is run again after a crash",
        "gateway/runs/index.py:RunIndex.load",
        "if run.state is RunState.ACCEPTED]",
        "if run.is_live]",
        (
            "tests/gateway/test_run_table.py::test_a_new_life_learns_what_to_run_what_was_interrupted_and_what_has_ended",
        ),
    ),
    Mutant(
        "I1",
        "a prompt that may have been sent is sent again",
        "gateway/turns/turn.py:Turn._lease_and_run",
        "not exc.sent or all",
        "not exc.sent or not all",
        ("tests/gateway/test_failures.py::test_a_worker_that_dies_in_mid_turn_ends_the_run_with_the_reason",),
    ),
    Mutant(
        "access",
        "a hold is released by another principal",
        "gateway/turns/holds.py:Holds.find",
        "hold.principal != principal or",
        "",
        ("tests/gateway/test_holds.py::test_a_hold_belongs_to_whoever_took_it",),
    ),
    Mutant(
        "I8",
        "an exclusive turn is steered",
        "gateway/lanes/machine.py:_turn_to_steer",
        "or turn.is_exclusive",
        "",
        (
            "tests/gateway/lanes/test_machine.py::test_an_exclusive_run_is_never_steered_and_an_exclusive_turn_takes_no_steers",
        ),
    ),
    Mutant(
        "durable",
        "a durable event is shown before its commit",
        "gateway/events/bus.py:EventBus.run",
        "self._commit(upto if is_durable else self._barrier.last)",
        "self._commit(self._barrier.last)",
        ("tests/gateway/events/test_bus.py::test_events_that_come_during_one_commit_share_the_next",),
    ),
)
_STORE = (
    Mutant(
        "durable",
        "a batch that the disk refused is forgotten",
        "store/backlog.py:WriteBacklog.requeue_batch",
        "self._waiting.appendleft(self._end_in_flight())",
        "self._end_in_flight()",
        ("tests/store/test_backlog.py::test_a_batch_given_back_is_the_next_one",),
    ),
    Mutant(
        "I7",
        "a full disk makes the memory grow",
        "store/backlog.py:WriteBacklog._enforce_limit",
        "waiting <= self._limit",
        "True",
        ("tests/store/test_backlog.py::test_over_the_limit_the_oldest_events_are_given_up_and_counted",),
    ),
)
_AGENT = (
    Mutant(
        "durable",
        "a tool with effects runs before its call is on the disk",
        "agent/call_runner.py:CallRunner._run_one",
        "await self._log.sync()",
        "pass",
        ("tests/agent/test_calls.py::test_a_tool_with_effects_begins_only_when_the_disk_knows_that_it_runs",),
    ),
    Mutant(
        "access",
        "a call runs that was denied",
        "agent/tool_call.py:_check_allowed",
        "",
        "return",
        ("tests/agent/test_call_states.py::TestCallWalk",),
    ),
    Mutant(
        "access",
        "a link leads out of the workspace",
        "agent/tools/paths.py:open_regular",
        "os.open(name, _REGULAR, ",
        "os.open(name, _REGULAR & ~os.O_NOFOLLOW, ",
        ("tests/agent/tools/test_places.py::test_a_link_that_comes_between_the_look_and_the_opening_is_not_followed",),
    ),
)
_HEARTBEAT = (
    Mutant(
        "I1",
        "an alert is delivered twice",
        "heartbeat/delivery/outbox.py:AlertOutbox.accept",
        "or alert.id in self._ended",
        "",
        ("tests/heartbeat/delivery/test_dispatcher.py::test_an_alert_handed_over_twice_is_told_once",),
    ),
    Mutant(
        "access",
        "a webhook leads into the own network",
        "heartbeat/delivery/targets.py:blocked_reason",
        "_range_kind(meant, _BLOCKED) or",
        "_range_kind(parsed, _BLOCKED) or",
        ("tests/heartbeat/delivery/test_targets.py::test_other_addresses_are_never_reached",),
    ),
)
_DOORS = (
    Mutant(
        "access",
        "any token is right",
        "doors/http/access.py:TokenRegistry.authenticate",
        "hmac.compare_digest(known, digest)",
        "True",
        ("tests/doors/http/test_gate.py::test_without_the_right_token_nothing_is_told",),
    ),
    Mutant(
        "private",
        "a new token can be read by others",
        "wire/files.py:replace_file",
        "0o600",
        "0o644",
        ("tests/doors/http/test_gate.py::test_a_token_is_made_once_for_its_owner_only",),
    ),
    Mutant(
        "I7",
        "responses for all peers fill the memory",
        "doors/budgets.py:OutputBudget.adjust",
        "while self._used > self._limit:",
        "while False:",
        ("tests/doors/test_control.py::test_answers_nobody_reads_end_the_connection_for_which_most_of_them_wait",),
    ),
)
_APP = (
    Mutant(
        "I6",
        "a collector that does not answer holds up the end",
        "app/optional.py:opened_tracer",
        "trio.move_on_after(_FLUSH_SECONDS, shield=True)",
        "trio.CancelScope(shield=True)",
        ("tests/app/test_optional.py::test_an_export_that_does_not_end_holds_up_the_end_for_seconds",),
    ),
)
_STRESS = (
    Mutant(
        "I2",
        "words of another session pass the judge",
        "stress/checker/requests.py:SessionIsolation.check",
        "if state.sessions.get(other) != session]",
        "if other < 0]",
        ("tests/stress/test_judges.py::test_a_history_breaks_exactly_these_promises",),
    ),
    Mutant(
        "I12",
        "a fault on one worker explains failures on another",
        "stress/checker/supervisor.py:FaultIsolation.check",
        "if not self._is_explained(",
        "if not state.faults and not self._is_explained(",
        ("tests/stress/test_judges.py::test_a_history_breaks_exactly_these_promises",),
    ),
)
BY_ROOM: dict[str, tuple[Mutant, ...]] = {
    "pool": _POOL,
    "rpc": (*_RPC, *ACP_WORKERS),
    "cluster": CLUSTER,
    "gateway": _GATEWAY,
    "store": _STORE,
    "agent": _AGENT,
    "heartbeat": _HEARTBEAT,
    "doors": (*_DOORS, *ACP_DOOR),
    "app": _APP,
    "stress": _STRESS,
}
MUTANTS: tuple[Mutant, ...] = tuple(mutant for mutants in BY_ROOM.values() for mutant in mutants)
