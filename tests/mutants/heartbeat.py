"""Guards of what agents do by themselves: jobs and deliveries."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        keeps="I1",
        without="an alert is delivered twice",
        file="heartbeat/delivery/outbox.py",
        old=" or alert.id in self._ended",
        new="",
        tests=("tests/heartbeat/delivery/test_courier.py::test_an_alert_handed_over_twice_is_told_once",),
    ),
    Mutant(
        keeps="I1",
        without="an alert on its way is sent once more",
        file="heartbeat/delivery/outbox.py",
        old="lane is None or lane.in_flight is not None",
        new="lane is None",
        tests=(
            "tests/heartbeat/delivery/test_outbox.py::test_an_alert_that_failed_does_not_hold_up_the_others_of_its_place",
        ),
    ),
    Mutant(
        keeps="durable",
        without="a failed delivery is forgotten by a crash",
        file="heartbeat/delivery/outbox.py",
        old="[SaveRecord(alert_id, record), *self._next_attempt(record.place)]",
        new="[*self._next_attempt(record.place)]",
        tests=("tests/heartbeat/delivery/test_courier.py::test_a_restart_goes_on_and_the_pause_with_it",),
    ),
    Mutant(
        keeps="I7",
        without="places that nobody writes to are remembered",
        file="heartbeat/delivery/outbox.py",
        old=("        if not lane.waiting:\n            del self._queues[record.place]\n"),
        new="",
        tests=("tests/heartbeat/delivery/test_courier.py::test_the_terminal_is_told_once_also_over_a_restart",),
    ),
    Mutant(
        keeps="I6",
        without="a refusal for good is tried again",
        file="heartbeat/delivery/outbox.py",
        old="failure.permanent or ",
        new="",
        tests=("tests/heartbeat/delivery/test_outbox.py::test_a_failure_for_good_ends_the_attempts",),
    ),
    Mutant(
        keeps="access",
        without="a webhook leads into the own network",
        file="heartbeat/delivery/targets.py",
        old="_range_kind(meant, _BLOCKED) or",
        new="_range_kind(parsed, _BLOCKED) or",
        tests=("tests/heartbeat/delivery/test_addresses.py::test_other_addresses_are_never_reached",),
    ),
    Mutant(
        keeps="access",
        without="a webhook is led elsewhere",
        file="heartbeat/delivery/webhook.py",
        old="if 300 <= status < 400:",
        new="if False:",
        tests=("tests/heartbeat/delivery/test_webhook.py::test_a_redirect_is_a_failure_and_not_followed",),
    ),
    Mutant(
        keeps="access",
        without="a name is looked up again after it was judged",
        file="heartbeat/delivery/webhook.py",
        old="addresses=tuple(addresses[:4])",
        new="addresses=(host,)",
        tests=(
            "tests/heartbeat/delivery/test_webhook.py::test_a_name_that_is_answered_otherwise_the_second_time_still_leads_where_it_was_checked",
        ),
    ),
    Mutant(
        keeps="private",
        without="a signing key is shown",
        file="heartbeat/delivery/settings.py",
        old='"SigningKey(***)"',
        new='f"SigningKey({self._key!r})"',
        tests=("tests/heartbeat/delivery/test_signing.py::test_a_key_shows_itself_nowhere",),
    ),
    Mutant(
        keeps="I1",
        without="a job runs beside itself",
        file="heartbeat/cron/machine.py",
        old="if ticket is None or entry.job.id in self._in_flight:",
        new="if ticket is None:",
        tests=("tests/heartbeat/cron/test_machine.py::test_a_job_with_another_text_goes_on_with_its_run",),
    ),
    Mutant(
        keeps="I7",
        without="more jobs run at once than may",
        file="heartbeat/cron/machine.py",
        old="while self._waiting and len(self._in_flight) < self._max_running",
        new="while self._waiting and len(self._in_flight) <= self._max_running",
        tests=(
            "tests/heartbeat/cron/test_machine.py::test_only_so_many_run_at_once_and_the_one_due_first_is_the_first",
        ),
    ),
    Mutant(
        keeps="I6",
        without="a clock that is set back stops all jobs",
        file="heartbeat/cron/machine.py",
        old="if now < self._latest - _CLOCK_SLACK:",
        new="if False:",
        tests=(
            "tests/heartbeat/cron/test_machine_troubles.py::test_a_back_off_by_a_wrong_clock_does_not_hold_for_years",
        ),
    ),
)
