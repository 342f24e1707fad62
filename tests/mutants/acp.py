"""The guards of what speaks ACP: agents as workers, and the pool as an editor's agent."""

from tests.mutants.mutant import Mutant

_QUESTIONS = "tests/doors/acp/test_questions.py"

ACP_WORKERS = (
    Mutant(
        "I2",
        "another conversation's replay passes for the session's",
        "rpc/acp/sessions.py:AcpSessions._load",
        "verdict is ReplayVerdict.FOREIGN",
        "False",
        ("tests/rpc/acp/test_resume.py::test_text_that_is_not_the_transcripts_ends_the_worker",),
    ),
    Mutant(
        "I2",
        "what an earlier conversation says is shown in this one",
        "rpc/acp/inbox.py:AcpInbox._route",
        "current is not None and current.session == session",
        "current is not None",
        ("tests/rpc/acp/test_sessions.py::test_updates_of_earlier_conversations_change_nothing_and_are_counted",),
    ),
    Mutant(
        "I1",
        "an aborted turn waits for its answer for ever",
        "rpc/acp/turns.py:AcpTurns.abort",
        "self._give_up_at = self._link.now + self._settings.abort_grace",
        "pass",
        ("tests/rpc/acp/test_turns.py::test_a_prompt_that_is_not_answered_after_its_cancel_ends_all_the_same",),
    ),
    Mutant(
        "I1",
        "a prompt that was not sent stays in the transcript",
        "rpc/requests.py:PendingRequests.fail_all",
        "if request.journal and not request.sent",
        "if False",
        ("tests/rpc/acp/test_client.py::test_a_prompt_stands_in_the_transcript_only_where_it_may_have_been_read",),
    ),
    Mutant(
        "I1",
        "a conversation that its agent has lost fails every prompt",
        "rpc/acp/turns.py:AcpTurns._record_end",
        "self._sessions.lose(conversation)",
        "pass",
        (
            "tests/rpc/acp/test_losses.py::test_a_prompt_of_a_lost_conversation_fails_once_and_the_next_one_follows_a_load",
        ),
    ),
    Mutant(
        "I2",
        "two conversations of an agent have one id",
        "rpc/acp/sessions.py:AcpSessions._begin",
        "session in self.known and session != lost_id",
        "False",
        ("tests/rpc/acp/test_sessions.py::test_an_id_that_an_earlier_conversation_has_is_refused",),
    ),
    Mutant(
        "I2",
        "one session's words are written into the journal of another",
        "rpc/journal.py:_check_owner",
        'header.agent_session is not None and Path(path).name.removesuffix(".jsonl") != header.id',
        "False",
        ("tests/rpc/test_journal.py::test_two_journals_that_were_exchanged_are_refused_and_stay_as_they_are",),
    ),
    Mutant(
        "I7",
        "what is said before a conversation has its id is held without an end",
        "rpc/acp/inbox.py:AcpInbox._hold",
        "len(self._held) >= _MAX_HELD_LINES or self._held_bytes + size > _MAX_HELD_BYTES",
        "False",
        ("tests/rpc/acp/test_sessions.py::test_no_more_than_64_lines_and_a_MiB_are_held",),
    ),
    Mutant(
        "access",
        "a question stays open when its turn is aborted",
        "rpc/acp/turns.py:AcpTurns.abort",
        "self._desk.cancel_all()",
        "pass",
        ("tests/rpc/acp/test_permissions.py::test_an_abort_answers_open_and_later_questions_at_once",),
    ),
    Mutant(
        "access",
        "readonly allows what changes something",
        "rpc/acp/permissions.py:PermissionDesk._decide_by_rule",
        'self._mode == "auto" or call.kind in READING_KINDS',
        "True",
        ("tests/rpc/acp/test_permissions.py::test_readonly_allows_what_changes_nothing",),
    ),
    Mutant(
        "I10",
        "the exit code of a wrapper passes for the agent's",
        "rpc/wrapper_watch.py:WrapperWatch.reap",
        "ExitStatus() if self._is_replaced else status",
        "status",
        (
            "tests/rpc/test_wrapper_watch.py::test_an_agent_whose_wrapper_has_exited_goes_on_and_is_ended_like_any_other",
        ),
    ),
)
ACP_DOOR = (
    Mutant(
        "access",
        "what an editor answers because it cancels is a decision",
        "doors/acp/attaching.py:SessionFollower.on_editor_answer",
        "void=asked.is_void",
        "void=False",
        (f"{_QUESTIONS}::test_what_an_editor_answers_because_it_cancels_decides_nothing_about_calls_of_others",),
    ),
    Mutant(
        "I2",
        "an editor hears the events of another session as its own",
        "doors/acp/attaching.py:SessionFollower.on_push",
        "session.subscription == pushed.subscription",
        "True",
        ("tests/doors/acp/test_updates.py::test_sessions_are_kept_apart",),
    ),
    Mutant(
        "I1",
        "a cancel asks for the end of a run that the pool does not know yet",
        "doors/acp/state.py:DoorState.cancel",
        "run.is_accepted and run.end is None",
        "run.end is None",
        ("tests/doors/acp/test_prompts.py::test_a_cancel_that_comes_before_the_acceptance_waits_for_it",),
    ),
    Mutant(
        "I7",
        "a line without an end fills the memory",
        "doors/acp/jsonrpc.py:EditorFramer._keep",
        "self._pending.tell() + len(piece) > self._limit",
        "False",
        ("tests/doors/acp/test_lines.py::test_of_a_line_that_is_too_long_nothing_is_kept_in_memory",),
    ),
)
