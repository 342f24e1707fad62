"""The conversations of one agent process: how it is started, and how one is begun, left, gone on with or re-fed."""

import posixpath
from collections.abc import Callable
from typing import Any

from errors import ProtocolViolation, WorkerRefused
from rpc.acp.agent_record import AcpAgentRecord, read_record, version_problem, wants_login
from rpc.acp.conversation import AcpConversation, Replay, ReplayVerdict, journal_path, unknown_id
from rpc.acp.link import AcpLink, AcpProcedure, AcpRequest
from rpc.acp.login import login_error, with_login
from rpc.acp.messages import METHOD_NOT_FOUND, PROTOCOL_VERSION, AcpAnswer, text_of
from rpc.acp.new_id import id_reused, read_new_id
from rpc.acp.options import AcpOptions, JournalFacts
from rpc.acp.prompt import process_mark
from rpc.acp.session_config import read_config
from rpc.acp.settings_apply import WantedSettings, apply_settings
from rpc.run_events import StampedEvent

CLOSE_SECONDS = 2.0
LOAD_LIMIT = 120.0
PROBE_SECONDS = 10.0
"""An agent that starts a process for each conversation needs 0.7 s to say that it has none of that id."""
LOAD_REFUSED = "load_refused"
"""The ``worker_code`` where an agent has refused a load, and then also to begin the conversation again."""
MAX_CONVERSATIONS = 20
"""Conversations that a process may have open: it closes none, or refuses to."""
_UNUSABLE = -1
"""Turns of a conversation that is open in the process and is not what it should be."""


class AgentResumed(StampedEvent, frozen=True):
    """``agent_resumed``: the conversation goes on: ``kept``, ``loaded``, ``resumed`` or ``refed``.

    ``cause``: why it was fed again: ``unsupported``, ``less`` than the journal, or ``error``, whose words are there.
    """

    strategy: str
    cause: str | None = None
    error: str | None = None


class AcpSessions:
    """One per dialect.

    Attributes:
        current: the conversation that prompts go to.
        record: what the agent says of itself.
        replay: what is being loaded.
        awaits_id: ``session/new`` is not answered.
        retire_reason: why the process should serve no further conversation.
        has_lost_current: the agent no longer has the conversation that was the current one, and no other is.
        strategy, cause, error: how the latest switch went on with its conversation, why it fed it again, and in which
            words the agent refused.
        on_state: called with what an agent said of the state of a conversation while it loaded it.
        on_answered: called when ``session/new`` has been answered; its conversation is the current one then, or there
            is none.
    """

    def __init__(self, link: AcpLink, options: AcpOptions, wanted: WantedSettings, idle_limit: float) -> None:
        self._link = link
        self._options = options
        self._wanted = wanted
        self._idle_limit = idle_limit
        self._open: dict[str, AcpConversation] = {}
        self._lost: set[str] = set()
        self._servers: list[dict[str, Any]] = []
        self.known: set[str] = set()
        self.current: AcpConversation | None = None
        self.record = AcpAgentRecord()
        self.replay: Replay | None = None
        self.awaits_id = False
        self.retire_reason: str | None = None
        self.has_lost_current = False
        self.strategy: str | None = None
        self.cause: str | None = None
        self.error: str | None = None
        self.on_answered: Callable[[], None] = lambda: None
        self.on_state: Callable[[AcpConversation, dict[str, Any]], None] = lambda _conversation, _update: None

    @property
    def name(self) -> str:
        """What to call the agent."""
        return self._options.agent or self.record.agent or "the agent"

    # --- start ---

    def start(self) -> AcpProcedure[None]:
        """Agree on the protocol and begin the spare conversation. Raises WorkerRefused where the agent cannot work."""
        client = {"name": "pool", "version": self._options.client_version}
        session: dict[str, Any] = {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}}
        files = {"readTextFile": False, "writeTextFile": False}
        abilities = {"fs": files, "terminal": False, "session": session}
        params = {"protocolVersion": PROTOCOL_VERSION, "clientInfo": client, "clientCapabilities": abilities}
        answer = yield AcpRequest("initialize", params)
        self.record = read_record(answer.result)
        if problem := version_problem(self.name, answer.result):
            raise WorkerRefused(problem, worker_code="unsupported")
        spare = yield from self._begin()
        spare.is_spare = True

    # --- begin, leave ---

    def new(self, servers: list[dict[str, Any]]) -> AcpProcedure[AcpConversation]:
        """A new conversation with these MCP servers beside the definition's: the spare one the first time.

        Raises WorkerRefused ``used``, and as ``_begin`` does.
        """
        self._servers = servers
        if self.current is not None and self.current.is_spare and self.current.servers == servers:
            self.current.is_spare = False
            return self.current
        self._require_room()
        yield from self._leave()
        return (yield from self._begin())

    def _require_room(self) -> None:
        if len(self._open) >= MAX_CONVERSATIONS:
            raise WorkerRefused(f"the process has {len(self._open)} conversations open", worker_code="used")

    def _begin(
        self, journal: str | None = None, turns: int = 0, earlier: str = "", *, lost_id: str = ""
    ) -> AcpProcedure[AcpConversation]:
        """``lost_id``: under which the agent had it before; that may be used again, and no other that was.

        Raises WorkerRefused: ``auth_required``, ``bad_answer``, ``id_reused``, ``setting_refused``, ``agent_error``.
        """
        self.awaits_id = True
        try:
            answer = yield from self._with_login("session/new", self._place())
            session = read_new_id(answer)
            if session in self.known and session != lost_id:  # it is open now, and must not be loaded again
                self._open[session] = self._unusable(session, fresh=True)
                raise id_reused(self.name, session)
        except WorkerRefused:
            self.on_answered()
            raise
        finally:
            self.awaits_id = False
        path = journal or journal_path(self._options.journal_dir, session)
        conversation = AcpConversation(session, path, read_config(answer.result), turns=turns, fresh=True)
        conversation.earlier = earlier
        yield from self._adopt(conversation)
        return conversation

    def _adopt(self, conversation: AcpConversation) -> AcpProcedure[None]:
        self.current = self._open[conversation.session] = conversation
        self.known.add(conversation.session)
        self._lost.discard(conversation.session)
        self.has_lost_current = False
        conversation.servers = self._servers
        if len(self._open) >= MAX_CONVERSATIONS:
            self.retire_reason = f"it has {len(self._open)} conversations open, which it does not close"
        self.on_answered()
        try:
            yield from apply_settings(conversation, self._wanted)
        except WorkerRefused:
            self.current = None
            raise

    def lose(self, conversation: AcpConversation) -> None:
        """The agent has said that it no longer has it: it is to be loaded again, and is not closed in order."""
        self._open.pop(conversation.session, None)
        self._lost.add(conversation.session)
        self._link.record(process_mark(conversation.journal, "lost"))
        if self.current is conversation:
            self.current, self.has_lost_current = None, True

    def _leave(self) -> AcpProcedure[None]:
        """Close the current conversation where that is offered; a failure is none of ours."""
        left, self.current = self.current, None
        if left is None or not (yield from self._close(left.session)):
            return
        if left.has_header and self.retire_reason is None:  # one that has not answered a prompt may know less
            self._link.record(process_mark(left.journal, "closed"))

    def _close(self, session: str) -> AcpProcedure[bool]:
        if not self.record.close:
            return False
        try:
            yield AcpRequest("session/close", {"sessionId": session}, seconds=CLOSE_SECONDS)
        except WorkerRefused:
            return False
        self._open.pop(session, None)
        return True

    def _place(self) -> dict[str, Any]:
        named = {server.get("name") for server in self._options.mcp_servers}
        more = [server for server in self._servers if server.get("name") not in named]
        return {"cwd": self._options.cwd, "mcpServers": [*self._options.mcp_servers, *more]}

    def _with_login(self, method: str, params: dict[str, Any]) -> AcpProcedure[AcpAnswer]:
        return with_login(AcpRequest(method, params), self.name, self.record, self._options.auth_method)

    # --- go on ---

    def switch(
        self, path: str, facts: JournalFacts, servers: list[dict[str, Any]], *, honest: bool
    ) -> AcpProcedure[AcpConversation]:
        """Go on with a conversation, with these MCP servers beside the definition's.

        ``honest``: the agent was seen to refuse an id that it does not have.

        Raises WorkerRefused: ``other_cwd``; ``stale``, where this process has an older state of it that it cannot
        close; ``timeout``; ``used``; ``load_refused``; and what beginning a conversation raises. Raises
        ProtocolViolation where the agent replays another conversation.
        """
        self.strategy = self.cause = self.error = None
        if posixpath.normpath(facts.cwd) != posixpath.normpath(self._options.cwd):
            raise WorkerRefused(
                f"the conversation belongs to {facts.cwd}, this worker to {self._options.cwd}", worker_code="other_cwd"
            )
        self._servers = servers
        held = self._open.get(facts.agent_session)
        if held is not None and not (yield from self._is_there(held)):
            del self._open[held.session]
            held = None
        if held is not None and held.turns == facts.turns and held.servers == servers:
            return (yield from self._keep(held, path, facts))
        self._require_room()
        if not facts.turns:
            return (yield from self._begin_again(path, facts))
        if held is not None:
            yield from self._close_stale(held)
        yield from self._leave()
        return (yield from self._restore(path, facts, honest=honest))

    def _is_there(self, held: AcpConversation) -> AcpProcedure[bool]:
        """Whether the agent still has a conversation that it was not asked to close; some end one for another.

        It is asked to set the mode that is set; one that knows no such conversation says so, with its id.
        """
        mode = held.config.mode
        if held is self.current or self.record.close or mode is None:
            return True
        self.replay = Replay(held.session)  # what it says of that is not shown
        try:
            yield AcpRequest("session/set_mode", {"sessionId": held.session, "modeId": mode}, seconds=CLOSE_SECONDS)
        except WorkerRefused as error:
            return held.session not in error.message
        finally:
            self.replay = None
        return True

    def _close_stale(self, held: AcpConversation) -> AcpProcedure[None]:
        """The transcript is ahead of what this process has; an id that is open must not be loaded again."""
        stale = WorkerRefused("this process holds an older state of the conversation", worker_code="stale")
        if held.is_fresh:  # nothing was said under it here: it was given to a new one
            stale = id_reused(self.name, held.session)
        if not self.record.close:
            raise stale
        if self.current is held:
            self.current = None
        if not (yield from self._close(held.session)):
            raise stale

    def _keep(self, held: AcpConversation, path: str, facts: JournalFacts) -> AcpProcedure[AcpConversation]:
        if self.current is not held:
            yield from self._leave()
        if facts.closed_cleanly:  # by another process, after this one
            self._link.record(process_mark(path, "opened"))
        held.journal, held.is_spare = path, False
        self.current, self.has_lost_current = held, False
        yield from apply_settings(held, self._wanted)
        self._report("kept")
        return held

    def _begin_again(self, path: str, facts: JournalFacts) -> AcpProcedure[AcpConversation]:
        """No turn has ended in it, and agents forget such conversations; what was said is put into the next prompt."""
        if self.current is not None and self.current.is_spare and self.current.servers == self._servers:
            fresh, fresh.journal, fresh.is_spare = self.current, path, False
        else:
            yield from self._leave()
            fresh = yield from self._begin(path)
        if facts.tail:
            fresh.earlier = facts.tail
            self._report("refed", "unsupported")
        return fresh

    def _restore(self, path: str, facts: JournalFacts, *, honest: bool) -> AcpProcedure[AcpConversation]:
        cause, words = "unsupported", None
        is_lost = facts.agent_session in self._lost
        if is_lost:  # as the agent says; what it has open after all must not be loaded a second time
            yield from self._close(facts.agent_session)
        for method in self._ways_back(facts, honest=honest):
            try:
                verdict, answer, replay = yield from self._load(path, facts, method)
            except WorkerRefused as error:
                self._raise_unless_answered(error)
                if is_lost:  # this process may be broken: another one shows whether the conversation is
                    raise WorkerRefused(f"the agent has lost the conversation: {error}", worker_code="stale") from error
                cause, words = "error", error.message
                continue  # what was not resumed can be loaded
            if verdict is ReplayVerdict.WHOLE:
                return (yield from self._take_up(path, facts, method, answer, replay))
            cause, words = "less", None
            yield from self._close(facts.agent_session)
            break
        try:
            conversation = yield from self._begin(path, facts.turns, facts.tail, lost_id=facts.agent_session)
        except WorkerRefused as error:
            if cause == "error" and error.details.get("worker_code") == "agent_error":
                raise WorkerRefused(error.message, **{**error.details, "worker_code": LOAD_REFUSED}) from error
            raise
        self._report("refed", cause, words)
        return conversation

    def _ways_back(self, facts: JournalFacts, *, honest: bool) -> list[str]:
        """The methods to try, in order. One shows nothing of what it took up: it is for those that can be believed."""
        can_resume = self.record.resume and honest and facts.closed_cleanly
        offered = (("session/resume", can_resume), ("session/load", self.record.load))
        return [method for method, can in offered if can and facts.agent_session]

    def _take_up(
        self, path: str, facts: JournalFacts, method: str, answer: AcpAnswer, replay: Replay
    ) -> AcpProcedure[AcpConversation]:
        config = read_config(answer.result)
        conversation = AcpConversation(facts.agent_session, path, config, turns=facts.turns, fresh=False)
        yield from self._adopt(conversation)
        for update in replay.state.values():
            self.on_state(conversation, update)
        self._report("resumed" if method == "session/resume" else "loaded")
        return conversation

    def _load(
        self, path: str, facts: JournalFacts, method: str
    ) -> AcpProcedure[tuple[ReplayVerdict, AcpAnswer, Replay]]:
        session = facts.agent_session
        replay = self.replay = Replay(session)
        self.known.add(session)
        # open and unusable until the answer: after a time-out nothing may load it again in this process
        self._open[session] = self._unusable(session, fresh=False)
        self._link.record(process_mark(path, "opened"))
        try:
            params = {"sessionId": session, **self._place()}
            answer = yield AcpRequest(method, params, seconds=min(self._idle_limit, LOAD_LIMIT), limit=LOAD_LIMIT)
        except WorkerRefused as error:
            if error.details.get("worker_code") != "timeout":
                self._open.pop(session, None)
            raise
        finally:
            self.replay = None
        if text_of(answer.result.get("sessionId")) not in (None, session):
            return ReplayVerdict.LESS, answer, replay
        if method == "session/resume" and replay.is_empty:  # as it has to be; the agent's honesty is the proof
            return ReplayVerdict.WHOLE, answer, replay
        verdict = replay.verdict(facts, self._options.instructions)
        if verdict is ReplayVerdict.FOREIGN:
            raise ProtocolViolation(f"asked for {session}, the agent replayed another conversation")
        return verdict, answer, replay

    def _unusable(self, session: str, *, fresh: bool) -> AcpConversation:
        return AcpConversation(session, "", read_config({}), turns=_UNUSABLE, fresh=fresh)

    def _raise_unless_answered(self, error: WorkerRefused) -> None:
        """A time-out is no answer, and a login that is missing says nothing of the conversation."""
        if error.details.get("worker_code") == "timeout":
            self.retire_reason = "it did not answer a load in time"
            raise error
        if wants_login(error):
            raise login_error(self.name, self.record, error.message) from error

    def probe(self, nonce: str) -> AcpProcedure[bool | None]:
        """Whether the agent refuses to resume an id that it cannot have; None where its answer says nothing of it.

        One that does not refuse may have changed its conversation: the spare one is begun again.
        """
        if not self.record.resume or self.current is None:
            raise WorkerRefused("the agent resumes nothing", worker_code="unsupported")
        session = unknown_id(self.current.session, nonce)
        self.replay, self._servers = Replay(session), []
        try:
            yield AcpRequest("session/resume", {"sessionId": session, **self._place()}, seconds=PROBE_SECONDS)
        except WorkerRefused as error:
            if error.details.get("worker_code") == "timeout":
                raise
            return None if wants_login(error) else error.details.get("agent_code") != METHOD_NOT_FOUND
        finally:
            self.replay = None
        was_spare = self.current.is_spare
        yield from self._close(session)
        yield from self._leave()
        spare = yield from self._begin()
        spare.is_spare = was_spare
        return False

    def _report(self, strategy: str, cause: str | None = None, words: str | None = None) -> None:
        self.strategy, self.cause, self.error = strategy, cause, words
        run_id, seq = self._link.stamp()
        self._link.emit(
            "agent_resumed", AgentResumed(strategy=strategy, cause=cause, error=words, run_id=run_id, seq=seq)
        )
