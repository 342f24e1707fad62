"""The guards of what runs on other machines: fences, leases, durable answers, and what a node may say."""

from tests.mutants.mutant import Mutant

_FENCING = "tests/cluster/test_fencing.py"
_TRANSPORT = "tests/cluster/test_transport.py"

CLUSTER = (
    Mutant(
        "I8",
        "a session moves from a lost node before its lease has ended",
        "cluster/nodes.py:NodeRoster.fence",
        " and now >= life.fenced_at",
        "",
        (f"{_FENCING}::test_no_delays_let_two_workers_have_one_session",),
    ),
    Mutant(
        "I8",
        "a second link of a name is taken while the first may have workers",
        "cluster/nodes.py:NodeRoster._is_over",
        "not last.is_linked and now >= last.fenced_at",
        "True",
        (f"{_FENCING}::test_a_second_link_of_a_name_is_refused_while_the_first_may_live",),
    ),
    Mutant(
        "I8",
        "a worker of a lost node counts as gone at once",
        "cluster/transport.py:RemoteProcess.on_lost",
        "is_gone=False",
        "is_gone=True",
        (f"{_TRANSPORT}::test_a_lost_node_ends_its_worker_at_once_and_its_stop_after_the_fence",),
    ),
    Mutant(
        "I8",
        "a lease runs from the arrival of the answer, a second after the ping",
        "cluster/lease.py:NodeLease.answered",
        "self.ends_at = sent + self._seconds",
        "self.ends_at = sent + 1.0 + self._seconds",
        (f"{_FENCING}::test_a_lease_runs_from_the_sending_of_the_ping_that_was_answered",),
    ),
    Mutant(
        "I8",
        "the guard of a suspended node program waits for it",
        "cluster/node/lease_guard.py:LeaseWatch.wait",
        "if left <= 0:",
        "if left <= -1e9:",
        ("tests/cluster/test_node_faults.py::test_a_session_goes_on_elsewhere_once_nothing_of_its_lost_node_runs",),
    ),
    Mutant(
        "durable",
        "an answer is shown before its entry is written",
        "cluster/transport.py:RemoteProcess._hold",
        "self._inbox or isinstance(what, Piece)",
        "isinstance(what, Piece)",
        (f"{_TRANSPORT}::test_output_is_handed_on_only_when_the_transcript_before_it_is_on_the_disk",),
    ),
    Mutant(
        "durable",
        "an entry is written and not synced",
        "cluster/mirror.py:TranscriptMirror.write",
        "os.fdatasync(file)",
        "pass",
        (f"{_TRANSPORT}::test_output_is_handed_on_only_when_the_transcript_before_it_is_on_the_disk",),
    ),
    Mutant(
        "access",
        "a secret that was used lets another one in",
        "cluster/invitations.py:Invitations.use",
        '("", known[1])',
        "known",
        ("tests/cluster/test_invitations.py::test_a_used_secret_lets_no_other_link_in_and_its_name_stays_the_engines",),
    ),
    Mutant(
        "access",
        "a file outside the workspace is read through a link that was put there after the look",
        "rpc/workspace.py:_open",
        "os.O_RDONLY, follow=False",
        "os.O_RDONLY, follow=True",
        ("tests/rpc/test_workspace.py::test_what_is_exchanged_for_a_link_after_the_look_is_not_read",),
    ),
    Mutant(
        "I7",
        "a node opens the window of its input without bound",
        "cluster/link.py:CreditWindow.give",
        "self.left > self._size",
        "False",
        ("tests/cluster/test_hostile_peers.py::test_a_window_never_opens_wider_than_it_was",),
    ),
)
