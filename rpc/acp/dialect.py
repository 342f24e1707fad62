"""The ACP dialect: an agent of the Agent Client Protocol v1 behind native messages. Sans-IO.

Implements ``rpc.dialect.Dialect``.
"""

from collections.abc import Callable
from functools import partial
from operator import setitem
from typing import Any, TypeVar

import msgspec

from errors import UsageError, WorkerRefused
from rpc.acp import settings_apply
from rpc.acp.calls import CallBook
from rpc.acp.conversation import AcpConversation
from rpc.acp.health import PingCheck
from rpc.acp.inbox import AcpInbox
from rpc.acp.link import AcpLink, AcpProcedure
from rpc.acp.loss import loss_of
from rpc.acp.messages import AcpLine
from rpc.acp.options import AcpOptions
from rpc.acp.permissions import AcpDecideParams, PermissionDesk
from rpc.acp.prompt import check_images, check_prompt
from rpc.acp.requests import (
    AcpCapabilities,
    AcpDescribeCallParams,
    AcpNewSessionParams,
    AcpNoParams,
    AcpProbeParams,
    AcpProbeResult,
    AcpSetModelParams,
    AcpSetModeParams,
    AcpSetOptionParams,
    AcpSetThinkingParams,
    AcpStateResult,
    AcpSwitchSessionParams,
)
from rpc.acp.session_config import SessionConfig
from rpc.acp.sessions import AcpSessions
from rpc.acp.turns import AcpTurns
from rpc.acp.update_handler import AcpUpdateHandler
from rpc.dialect import ConversationFacts, Step
from rpc.params import decode_params
from rpc.passthrough import RawObject
from rpc.settings import RpcSettings
from wire.framing import decode_block, decode_each_line
from wire.messages import AbortParams, PromptParams, Ready, SessionResult, TextParams

R = TypeVar("R")


class AcpDialect:
    """Implements ``rpc.dialect.Dialect`` for agents of the Agent Client Protocol v1.

    Beside the contract:

    - A process has one conversation at a time. The transcripts are ours: ``Step.journal`` says what to append.
    - The event ``start_failed{message}`` instead of ``ready``: the agent lives, but cannot work.
    - ``switch_session`` needs what the transcript says (``journal``) and the event ``agent_resumed`` says how it went.
    - A prompt beside a run is refused with ``busy``; ``steer``, and a prompt with that behaviour, reach the run where
      the agent offers it. An ``abort`` is answered after the run, which ends after ``abort_grace`` in any case.
    - Further methods: ``decide{call_id, decision, option_id?, note?}``, ``describe_call``, ``set_mode``,
      ``set_option``, ``get_capabilities`` and ``probe_resume``.
    - ``retire_reason``: why the process should not serve another conversation.
    """

    name = "acp"

    def __init__(self, settings: RpcSettings, options: AcpOptions) -> None:
        self._decoder = msgspec.json.Decoder(AcpLine)
        self._link = link = AcpLink()
        self._wanted = settings_apply.wanted_settings(options)
        self._sessions = sessions = AcpSessions(link, options, self._wanted, settings.request_timeout)
        calls = CallBook(link)
        self._desk = PermissionDesk(link, calls, options.permission_mode)
        self._turns = AcpTurns(link, sessions, calls, self._desk, options=options, settings=settings)
        updates = AcpUpdateHandler(link, self._turns, calls)
        self._inbox = AcpInbox(link, sessions, self._turns, updates, self._desk)
        sessions.on_answered, sessions.on_state = self._inbox.release, updates.handle
        self._ping = PingCheck(link)
        self._exclusive: str | None = None
        self._methods: dict[str, Callable[[str, msgspec.Raw], None]] = {
            "prompt": self._prompt,
            "steer": self._steer,
            "follow_up": self._follow_up,
            "abort": self._abort,
            "decide": self._decide,
            "describe_call": self._describe_call,
            "new_session": self._new_session,
            "switch_session": self._switch_session,
            "get_state": self._get_state,
            "get_commands": self._get_commands,
            "get_capabilities": self._get_capabilities,
            "set_model": self._set_model,
            "set_thinking": self._set_thinking,
            "set_mode": self._set_mode,
            "set_option": self._set_option,
            "probe_resume": self._probe_resume,
            "ping": self._answer_ping,
        }

    # --- the contract ---

    @property
    def is_running(self) -> bool:
        """From a prompt to its answer."""
        return self._turns.is_running

    @property
    def is_streaming(self) -> bool:
        """The same: a second prompt is never sent."""
        return self._turns.is_running

    @property
    def retire_reason(self) -> str | None:
        """Why this process should serve no further conversation; None where it may."""
        return self._sessions.retire_reason

    @property
    def has_lost_conversation(self) -> bool:
        """Whether the agent no longer has the conversation that was the current one."""
        return self._sessions.has_lost_current

    @property
    def conversation_facts(self) -> ConversationFacts:
        """What the agent last said of its conversation."""
        conversation = self._sessions.current
        if conversation is None:
            return ConversationFacts()
        config = conversation.config
        return ConversationFacts(
            options=tuple(option.id for option in config.options),
            model=config.model,
            mode=config.mode,
            context=conversation.context,
        )

    def listen_raw(self, *, on: bool) -> None:
        """Nothing: front ends that speak an agent's own protocol are not attached to its pipe."""

    def forward(self, request_id: str, command: RawObject, now: float) -> Step:  # noqa: ARG002 - the contract's
        """Refused: an agent's ids and conversations are ours."""
        raise UsageError("a worker of the acp dialect takes no lines of a front end", worker_code="unsupported")

    def open(self, now: float) -> Step:
        """Agree on the protocol and begin a conversation; the agent is ready when that is done."""
        self._link.now = now
        self._link.run(self._sessions.start(), self._on_ready, self._on_start_failure)
        return self._link.collect_step()

    def request(self, request_id: str, method: str, params: msgspec.Raw, now: float) -> Step:
        """Send a native request. UsageError carries ``worker_code`` unsupported or invalid_params."""
        handler = self._methods.get(method)
        if handler is None:
            raise UsageError(f"a worker of the acp dialect does not do {method}", worker_code="unsupported")
        return self._link.begin(handler, request_id, params, now)

    def receive(self, block: bytes, now: float) -> Step:
        """Translate a block of complete lines. Raises ProtocolViolation where a load replays another conversation."""
        self._link.now = now
        if self._inbox.take_pieces(block):
            return self._link.collect_step()
        self._link.note_life()
        decoded = decode_block(block, self._decoder)
        if not all(map(_is_message, decoded.messages)):
            decoded = decode_each_line(block, self._decoder, _is_message)
        for line in decoded.messages:
            self._inbox.take(line)
        return self._link.collect_step(decoded)

    def forget(self, request_id: str) -> None:
        """Drop a late answer; the run or procedure behind the request goes on."""
        self._link.forget(request_id)

    def next_deadline(self) -> float | None:
        """The earliest deadline of open requests and of an aborted turn."""
        deadlines = (self._link.next_deadline(), self._turns.next_deadline())
        return min((at for at in deadlines if at is not None), default=None)

    def expire(self, now: float) -> Step:
        """Act on the deadlines that have passed."""
        self._link.now = now
        self._link.expire()
        self._turns.expire()
        return self._link.collect_step()

    # --- start ---

    def _on_ready(self, _nothing: object) -> None:
        record, conversation = self._sessions.record, self._sessions.current
        config = SessionConfig() if conversation is None else conversation.config
        ready = Ready(
            agent=record.agent,
            version=record.version,
            methods=sorted(self._methods),
            capabilities=record.abilities,
            models=config.offered()["models"],
            thinking_levels=config.thinking_levels,
        )
        self._link.emit("ready", ready)
        self._ping.try_out()

    def _on_start_failure(self, error: WorkerRefused) -> None:
        self._link.emit("start_failed", {"message": error.message})

    # --- turns ---

    def _prompt(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, PromptParams)
        check_prompt(params, self._sessions.record)
        if self._turns.is_running and params.streaming_behavior == "steer":
            self._turns.steer(request_id, TextParams(params.text, params.images), is_prompt=True)
        elif self._turns.is_running:
            self._link.reject(request_id, "busy", "a run is in progress")
        elif (conversation := self._conversation_or_reject(request_id)) is not None:
            self._turns.start(request_id, conversation, params)

    def _steer(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, TextParams)
        check_images(params.images, self._sessions.record)
        self._turns.steer(request_id, params)

    def _follow_up(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, TextParams)
        if self._turns.is_running:
            self._link.reject(request_id, "busy", "an ACP agent takes one prompt at a time")
        else:
            self._link.reject(request_id, "idle", "no run is in progress; send a prompt")

    def _abort(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, AbortParams)
        self._turns.abort(request_id)

    def _decide(self, request_id: str, raw: msgspec.Raw) -> None:
        self._desk.decide(request_id, decode_params(raw, AcpDecideParams))

    def _describe_call(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, AcpDescribeCallParams)
        self._desk.describe(request_id, params.call_id, params.offset)

    # --- conversations ---

    def _new_session(self, request_id: str, raw: msgspec.Raw) -> None:
        servers = decode_params(raw, AcpNewSessionParams).mcp_servers
        self._run_alone(request_id, "new_session", self._sessions.new(servers), _session_result)

    def _switch_session(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, AcpSwitchSessionParams)
        switch = self._sessions.switch(params.session_file, params.journal, params.mcp_servers, honest=params.honest)
        self._run_alone(request_id, "switch_session", switch, self._switch_result)

    def _switch_result(self, conversation: AcpConversation) -> SessionResult:
        how = {name: getattr(self._sessions, name) or msgspec.UNSET for name in ("strategy", "cause", "error")}
        return SessionResult(conversation.id, conversation.journal, **how)

    def _probe_resume(self, request_id: str, raw: msgspec.Raw) -> None:
        nonce = decode_params(raw, AcpProbeParams).nonce
        self._run_alone(request_id, "probe_resume", self._sessions.probe(nonce), AcpProbeResult)

    def _run_alone(
        self, request_id: str, method: str, procedure: AcpProcedure[R], result_of: Callable[[R], object]
    ) -> None:
        """Run a procedure that no prompt and no other such procedure may meet; its result answers the request."""
        if self._turns.is_running or self._exclusive is not None:
            self._link.reject(request_id, "busy", f"{self._exclusive or 'a run'} is under way")
            return

        def finish(result: R) -> None:
            self._exclusive = None
            self._link.answer(request_id, result_of(result))

        def fail(error: WorkerRefused) -> None:
            self._exclusive = None
            self._link.reject_for(request_id, error)

        self._exclusive = method
        self._link.run(procedure, finish, fail)

    def _conversation_or_reject(self, request_id: str) -> AcpConversation | None:
        if self._exclusive is not None:
            self._link.reject(request_id, "busy", f"{self._exclusive} is under way")
            return None
        conversation = self._sessions.current
        if conversation is None:
            self._link.reject(request_id, "no_session", "the worker holds no conversation")
        return conversation

    # --- settings ---

    def _set_model(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, AcpSetModelParams)
        conversation = self._sessions.current
        named = params.model
        if params.provider and conversation is not None and not conversation.config.offers_model(named):
            named = f"{params.provider}/{named}"
        self._set(
            request_id, partial(settings_apply.set_model, model=named), partial(setattr, self._wanted, "model", named)
        )

    def _set_thinking(self, request_id: str, raw: msgspec.Raw) -> None:
        level = decode_params(raw, AcpSetThinkingParams).level
        self._set(
            request_id,
            partial(settings_apply.set_thinking, level=level),
            partial(setattr, self._wanted, "thinking", level),
        )

    def _set_mode(self, request_id: str, raw: msgspec.Raw) -> None:
        mode = decode_params(raw, AcpSetModeParams).mode
        self._set(request_id, partial(settings_apply.set_mode, mode=mode), partial(setattr, self._wanted, "mode", mode))

    def _set_option(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, AcpSetOptionParams)
        begin = partial(settings_apply.set_option, option_id=params.id, value=params.value)
        self._set(request_id, begin, partial(setitem, self._wanted.options, params.id, params.value))

    def _set(
        self, request_id: str, begin: Callable[[AcpConversation], AcpProcedure[None]], keep: Callable[[], None]
    ) -> None:
        """Set something in this conversation; where that went well, ``keep`` it for all later ones."""
        conversation = self._sessions.current
        if conversation is None:
            self._link.reject(request_id, "no_session", "the worker holds no conversation")
            return

        def finish(_nothing: None) -> None:
            keep()
            config = conversation.config
            self._link.answer(request_id, {"model": config.model, "level": config.thinking, "mode": config.mode})

        def fail(error: WorkerRefused) -> None:
            if not self._turns.is_running and loss_of(error.details.get("agent_code"), error.message) is not None:
                self._sessions.lose(conversation)
            self._link.reject_for(request_id, error)

        self._link.run(begin(conversation), finish, fail)

    # --- questions ---

    def _get_state(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, AcpNoParams)
        conversation, said = self._sessions.current, self.conversation_facts
        if conversation is not None:  # the caller may take it for the worker's conversation from now on
            conversation.is_spare = False
        state = AcpStateResult(
            session_id=conversation.id if conversation else "",
            session_file=conversation.journal if conversation else None,
            message_count=2 * conversation.turns if conversation else 0,
            is_streaming=self._turns.is_running,
            model=said.model,
            thinking=conversation.config.thinking if conversation else None,
            mode=said.mode,
            context=said.context,
            tolerated=self._link.strays + self._inbox.passed_over + self._inbox.of_earlier,
            retire_reason=self._sessions.retire_reason,
        )
        self._link.answer(request_id, state)

    def _get_commands(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, AcpNoParams)
        conversation = self._sessions.current
        self._link.answer(request_id, {"commands": conversation.commands if conversation else []})

    def _get_capabilities(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, AcpNoParams)
        record, conversation = self._sessions.record, self._sessions.current
        offered: dict[str, Any] = {"options": [], "modes": [], "models": []}
        if conversation is not None:
            offered = conversation.config.offered()
        found = {name: getattr(record, name) for name in AcpCapabilities.__struct_fields__ if hasattr(record, name)}
        self._link.answer(request_id, AcpCapabilities(**found, **offered, answers_ping=self._ping.answers))

    def _answer_ping(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, AcpNoParams)
        self._ping.ping(request_id)


def _is_message(line: AcpLine) -> bool:
    return isinstance(line.method, str) or line.is_answer


def _session_result(conversation: AcpConversation) -> SessionResult:
    return SessionResult(conversation.id, conversation.journal)
