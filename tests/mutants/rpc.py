"""Guards around one worker process: its client, and what is left of it."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        keeps="I1",
        without="an answer is taken for another's",
        file="rpc/requests.py",
        old=(
            "        exchange = self._by_id.pop(message.id, None)\n"
            "        if exchange is None:\n"
            "            self.late_answers"
        ),
        new=(
            "        exchange = self._by_id.popitem()[1] if self._by_id else None\n"
            "        if exchange is None:\n"
            "            self.late_answers"
        ),
        tests=(
            "tests/rpc/test_client.py::test_a_request_that_is_not_answered_in_time_fails_and_its_late_answer_goes_to_nobody",
        ),
    ),
    Mutant(
        keeps="I1",
        without="who waits when the worker dies is not told",
        file="rpc/client.py",
        old="        self._pending.fail_all(error)\n",
        new="",
        tests=("tests/rpc/test_client_end.py::test_an_exit_fails_everything_pending_once_and_tells_what_was_sent",),
        hangs=True,
    ),
    Mutant(
        keeps="I1",
        without="what may have been sent counts as not sent",
        file="rpc/pipes.py",
        old="        if taken and exchange is not None:",
        new="        if False and exchange is not None:",
        tests=(
            "tests/rpc/test_client.py::test_a_request_that_is_not_answered_in_time_fails_and_its_late_answer_goes_to_nobody",
        ),
    ),
    Mutant(
        keeps="I1",
        without="the last answer loses the race against the exit",
        file="rpc/client.py",
        old=("        if isinstance(self._cause, ExitStatus):\n            self._drain()\n"),
        new="",
        tests=("tests/rpc/test_client_end.py::test_the_last_answer_wins_its_race_against_the_exit",),
    ),
    Mutant(
        keeps="I6",
        without="a request waits for ever",
        file="rpc/client.py",
        old=("        self._deadline_timer.schedule(deadline)\n        self._apply(step, exchange)"),
        new="        self._apply(step, exchange)",
        tests=(
            "tests/rpc/test_client.py::test_a_request_that_is_not_answered_in_time_fails_and_its_late_answer_goes_to_nobody",
        ),
        hangs=True,
    ),
    Mutant(
        keeps="I6",
        without="a worker that closed its stdout and lives on is waited for",
        file="rpc/client.py",
        old='        await self._expect_exit("stdout", self.settings.eof_grace)\n',
        new="        await trio.sleep_forever()\n",
        tests=("tests/rpc/test_client_end.py::test_a_closed_stdout_is_followed_by_an_exit_or_breaks_the_protocol",),
    ),
    Mutant(
        keeps="I7",
        without="a worker's endless line is kept",
        file="wire/framing.py",
        old="        if self.violation is None and size > self._max_line_bytes:",
        new="        if False:",
        tests=("tests/wire/test_framing.py::test_an_endless_line_is_refused_before_its_end_and_its_bytes_are_let_go",),
    ),
    Mutant(
        keeps="I7",
        without="a slow subscriber makes the supervisor hold all a worker says",
        file="rpc/client.py",
        old="            await self._broadcast.wait_room()\n",
        new="",
        tests=(
            "tests/rpc/test_client_events.py::test_a_full_subscriber_holds_the_worker_back_and_memory_stays_bounded",
        ),
    ),
    Mutant(
        keeps="I7",
        without="an abandoned request is remembered",
        file="rpc/client.py",
        old=(
            "            if not exchange.is_settled:  # the caller was cancelled\n"
            "                self.abandon(exchange)"
        ),
        new="            pass",
        tests=("tests/rpc/test_client.py::test_a_cancelled_caller_is_forgotten_and_the_answer_dropped",),
    ),
    Mutant(
        keeps="I7",
        without="a worker that reads nothing makes its queue grow",
        file="rpc/client.py",
        old="        await self.wait_room(method, deadline)\n",
        new="",
        tests=("tests/rpc/test_client_end.py::test_a_worker_that_does_not_read_stalls_callers_until_it_reads",),
    ),
    Mutant(
        keeps="I12",
        without="a worker's nonsense ends the supervisor",
        file="rpc/client.py",
        old=(
            "        except Exception as exc:  # noqa: BLE001 - whatever a worker prints ends that worker, never the supervisor\n"  # noqa: E501
            "            self._stop(protocol_error(self._dialect.name, exc))"
        ),
        new=("        except MemoryError:\n            raise"),
        tests=("tests/rpc/test_client.py::test_a_worker_of_another_protocol_is_refused",),
    ),
    Mutant(
        keeps="I11",
        without="a stranger with the pid of a dead process is killed",
        file="wire/procfs.py",
        old="stat is not None and stat.start_time == self.start_time and",
        new="stat is not None and",
        tests=("tests/rpc/test_hunt.py::test_a_noted_process_is_known_by_its_start_time",),
    ),
    Mutant(
        keeps="I11",
        without="a process without our marker is killed",
        file="rpc/sweep.py",
        old=" and marker_of(stat.pid) == entry.marker:",
        new=":",
        tests=("tests/rpc/test_orphans.py::test_a_stranger_with_a_dead_workers_pid_is_never_signalled",),
    ),
    Mutant(
        keeps="I11",
        without="a process of an earlier boot is killed",
        file="rpc/sweep.py",
        old="        if entry.boot_id == this_boot and stat.start_time",
        new="        if stat.start_time",
        tests=("tests/rpc/test_orphans.py::test_a_stranger_with_a_dead_workers_pid_is_never_signalled",),
    ),
    Mutant(
        keeps="I11",
        without="the exit status of somebody else's child is stolen",
        file="rpc/orphans.py",
        old="stat is not None and stat.session != own_session]",
        new="stat is not None]",
        tests=("tests/rpc/test_orphans.py::test_somebody_elses_ordinary_subprocess_keeps_its_exit_status",),
    ),
    Mutant(
        keeps="I4",
        without="what forks while it dies is left",
        file="rpc/sweep.py",
        old="            prey = self._find_targets()\n            if",
        new="            prey = []\n            if",
        tests=("tests/rpc/test_hunt.py::test_what_cannot_be_killed_is_reported_and_not_hunted_for_ever",),
    ),
    Mutant(
        keeps="I4",
        without="a supervisor starts over workers of one that still runs",
        file="rpc/orphans.py",
        old="    if state.is_owner_alive():",
        new="    if False:",
        tests=("tests/rpc/test_orphans.py::test_a_supervisor_that_still_runs_keeps_its_workers",),
    ),
    Mutant(
        keeps="I4",
        without="descendants that hide their marker are left",
        file="rpc/sweep.py",
        old="        family = {ProcessRef.of(stat) for stat in descendants_of({quarry.pid for quarry in roots})}",
        new="        family = set()",
        tests=("tests/rpc/test_hunt.py::test_a_child_that_threw_its_marker_away_ends_with_its_marked_parent",),
    ),
    Mutant(
        keeps="I4",
        without="a hunter that was held up leaves without a strike",
        file="rpc/sweep.py",
        old="        while prey:\n",
        new="        while prey and time.monotonic() < deadline:\n",
        tests=("tests/rpc/test_hunt.py::test_a_hunter_that_was_held_up_strikes_all_the_same",),
    ),
    Mutant(
        keeps="I4",
        without="whoever forks all the time gets away between a look and its signal",
        file="rpc/children.py",
        old="            os.killpg(self._popen.pid, signal.SIGKILL)\n",
        new="",
        tests=(
            "tests/rpc/test_burial.py::test_whoever_forks_all_the_time_ends_with_the_worker_however_late_the_hunter_is",
        ),
    ),
    Mutant(
        keeps="I11",
        without="the process group of a stranger with a reaped child's pid is killed",
        file="rpc/children.py",
        old="            _poll_exit(self._popen)\n",
        new="",
        tests=("tests/rpc/test_exits.py::test_the_group_of_a_child_that_is_reaped_may_be_anothers",),
    ),
    Mutant(
        keeps="I4",
        without="a worker lives on because others are looked for",
        file="rpc/process.py",
        old="        with trio.move_on_after(_SCAN_TIMEOUT):\n",
        new="        with trio.CancelScope():\n",
        tests=(
            "tests/rpc/test_burial.py::test_a_worker_is_killed_though_no_thread_is_free_to_look_for_what_it_leaves",
        ),
    ),
    Mutant(
        keeps="I4",
        without="a worker that the supervisor died in the midst of starting is left",
        file="rpc/guard_main.py",
        old="        if not left and not is_held:",
        new="        if not left:",
        tests=("tests/rpc/test_guard.py::test_as_long_as_somebody_holds_the_pipe_the_guard_looks_again",),
    ),
    Mutant(
        keeps="I4",
        without="a worker is left that closed the guard's pipe and had not yet executed its program",
        file="rpc/guard_main.py",
        old="            if settled == len(_FINAL_PAUSES):",
        new="            if True:",
        tests=(
            "tests/rpc/test_guard.py::test_a_worker_that_executes_its_program_after_it_has_closed_the_pipe_is_found",
        ),
    ),
    Mutant(
        keeps="private",
        without="a worker inherits all variables of the supervisor",
        file="rpc/spawn.py",
        old="    passed = {name: base_env[name] for name in settings.env_passthrough if name in base_env}",
        new="    passed = dict(base_env)",
        tests=(
            "tests/pool/test_launcher.py::test_a_worker_inherits_what_is_let_through_its_profile_and_its_marker_only",
        ),
    ),
)
