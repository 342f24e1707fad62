"""Intake: from a front end's message to an accepted run; its session, its options, whether it is new."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import trio

from errors import PoolClosed, PoolError, RunAborted, UsageError
from gateway.hook_types import Drop, HookMessage
from gateway.hooks import HookRunner
from gateway.requests import AgentRequest
from gateway.runs.arrivals import Dedupe, SessionOrder
from gateway.runs.index import hash_body
from gateway.runs.registry import RunRegistry
from gateway.runs.run import Run, RunOrigin, RunOutcome, RunRequest, outcome_of_error
from gateway.sessions.agent_profiles import ProfileCache
from gateway.sessions.commands import COMMANDS, ParsedCommand, QueueOnceCommand, parse_command
from gateway.sessions.session_entry import SessionEntry, SessionStatus
from gateway.sessions.sessions import Sessions
from gateway.sessions.slash_commands import SlashCommands
from gateway.settings import CurrentSettings
from gateway.turns.client_tools import check_answer_options, check_client_tools
from gateway.turns.holds import Hold
from gateway.turns.scheduler import TurnScheduler
from heartbeat.ports import BeatRequest
from pool import Lease
from router.keys import normalize_session_key
from router.route import RouteDecision, find_priority, route
from router.source import MessageSource
from rpc.passthrough import RawRequest
from store.records import RunKey
from wire.messages import QueueMode


class RunTarget(NamedTuple):
    """The session that a message belongs to."""

    session: str
    agent: str
    role: str
    text: str


class Intake:
    """Accepts messages. What it refuses raises before anything is kept; what it accepts is durable when it returns."""

    def __init__(
        self,
        settings: CurrentSettings,
        *,
        run_registry: RunRegistry,
        sessions: Sessions,
        profile_cache: ProfileCache,
        scheduler: TurnScheduler,
        hooks: HookRunner,
        commands: SlashCommands,
        data_dir: Path,
        start_soon: Callable[..., None],
    ) -> None:
        self._settings = settings
        self._run_registry = run_registry
        self._sessions = sessions
        self._profile_cache = profile_cache
        self._scheduler = scheduler
        self._hooks = hooks
        self._commands = commands
        self._data_dir = data_dir
        self._start_soon = start_soon
        self._order = SessionOrder()
        self._dedupe: Dedupe[RunKey] = Dedupe(settings)
        self.is_closed = False

    def route(self, source: MessageSource, text: str) -> RouteDecision:
        """The session and agent of a message, with every layer's reasons. Raises UsageError."""
        parts = self._profile_cache.parts
        return route(parts.router, parts.profiles, source, text, data_dir=self._data_dir, commands=COMMANDS)

    async def accept(self, message: AgentRequest, principal: str, origin: RunOrigin = RunOrigin()) -> Run:  # noqa: B008  # a constant
        """The run of a message: a new one, or the known run of the same key or the same message.

        Raises UsageError, Conflict, PoolSaturated, PoolClosed.
        """
        run = await self.take(message, principal, origin)
        await self._run_registry.wait_durable(run)
        return run

    async def take(self, message: AgentRequest, principal: str, origin: RunOrigin = RunOrigin()) -> Run:  # noqa: B008  # a constant
        """The same without waiting until the acceptance is durable: the caller does, or follows the run's events."""
        self._check_open()
        target = self._resolve_target(message)
        text = await self._filter_text(target, message.source)
        if text is None:
            return await self._accept_dropped(message, target, principal)
        command = parse_command(text) if text.lstrip().startswith("/") else None
        mode = message.queue
        if isinstance(command, QueueOnceCommand):
            mode, text, command = message.queue or command.mode, command.text, None
        if not text.strip() and not message.images and not message.tool_results:
            raise UsageError("the message is empty; say something")
        request = self._request(message, target._replace(text=text), principal, mode, origin)
        if command is not None:
            if request.tool_results:
                raise UsageError("a slash command is carried out by the supervisor and takes no tool results")
            return await self._run_command(command, request, message.text)
        return self._accept(request, message.text)

    async def accept_with_hold(self, hold: Hold, message: AgentRequest, principal: str) -> Run:
        """The run of a message on a worker that its caller holds, without waiting. Raises as ``accept`` does."""
        self._check_open()
        entry = self._sessions.get(hold.session)
        if entry is None or hold.lease is None:
            raise UsageError(f"the hold on session {hold.session} has ended", session=hold.session)
        if parse_command(message.text) is not None:
            raise UsageError("a slash command is no message for a worker; send it without the hold")
        if message.model is not None:
            raise UsageError("a held worker keeps its model; send the message without the hold, or without a model")
        target = RunTarget(hold.session, entry.agent, entry.role, message.text)
        request = self._request(message, target, principal, QueueMode.FOLLOWUP, RunOrigin())
        run, is_new = self._run_registry.accept(request, _request_body(request, message.text))
        if is_new:
            self._run_registry.announce(run)
            self._start_soon(self._run_with_hold, hold, hold.lease, run)
        await self._run_registry.wait_durable(run)
        return run

    async def _run_with_hold(self, hold: Hold, lease: Lease, run: Run) -> None:
        await self._scheduler.run_with_lease(lease, run)
        if self.is_closed:
            hold.release_unused()

    def accept_passthrough(self, session: str, text: str, principal: str, raw: RawRequest) -> Run:
        """The run of a prompt that an attached front end wrote itself: a turn of its own, without a time limit.

        ``text`` stands for it in events and in the store. It is durable before it reaches the worker, as every run is.
        Raises PoolSaturated, PoolClosed.
        """
        self._check_open()
        entry = self._sessions.get(session)
        request = RunRequest(
            principal=principal,
            session=session,
            run_id=_new_run_id(),
            text=text,
            agent=entry.agent if entry else self._profile_cache.parts.router.default_agent,
            role=entry.role if entry else "default",
            timeout=0.0,
            mode=QueueMode.FOLLOWUP,
            attached=True,
        )
        run, _ = self._run_registry.accept(request, _request_body(request, text))
        run.raw = raw
        self._enqueue(run)
        return run

    async def accept_beat(self, beat: BeatRequest, principal: str) -> Run:
        """The run of a heartbeat or a scheduled task; its text is never a slash command. Raises likewise."""
        self._check_open()
        default = self._profile_cache.parts.router.default_agent
        session, agent, role = self._sessions.resolve(beat.session, beat.agent, None, default=default)
        self._profile_cache.check(agent, role)
        request = RunRequest(
            principal=principal,
            session=session,
            run_id=beat.run_id,
            text=beat.text,
            agent=agent,
            role=role,
            priority=beat.priority,
            timeout=beat.timeout,
            lane=beat.lane,
            mode=QueueMode.FOLLOWUP,
            spawn="room" if beat.room_only else True,
            tells_events=False,
            is_quiet=not beat.touch,
        )
        run = self._accept(request, beat.text)
        await self._run_registry.wait_durable(run)
        return run

    def _check_open(self) -> None:
        if self.is_closed:
            raise PoolClosed("the supervisor is shutting down and takes no new runs")

    # --- its session --------------------------------------------------------------------------------------------------

    def _resolve_target(self, message: AgentRequest) -> RunTarget:
        if (message.source is None) == (message.session is None):
            raise UsageError("a message has either a session or a source; give one of them")
        if message.source is not None:
            decision = self.route(message.source, message.text)
            self._profile_cache.check(decision.agent, decision.role)
            return RunTarget(decision.session, decision.agent, decision.role, decision.text)
        default = self._profile_cache.parts.router.default_agent
        session, agent, role = self._sessions.resolve(
            message.session or "", message.agent, message.role, default=default
        )
        self._profile_cache.check(agent, role)
        return RunTarget(session, agent, role, message.text)

    async def _filter_text(self, target: RunTarget, source: MessageSource | None) -> str | None:
        """The text as the hooks leave it; None = they dropped the message."""
        if "message:received" not in self._hooks.table:
            return target.text
        seen = HookMessage(session=target.session, text=target.text, source=source)
        async with self._order.lock(target.session):  # a slow hook must not reorder messages
            heard = await self._hooks.filter("message:received", seen)
        return None if isinstance(heard, Drop) else heard.text

    def _request(
        self, message: AgentRequest, target: RunTarget, principal: str, mode: QueueMode | None, origin: RunOrigin
    ) -> RunRequest:
        parts, from_session = self._profile_cache.parts, origin.from_session
        if message.source is not None and message.source.from_session is not None and not from_session:
            from_session = normalize_session_key(message.source.from_session)
        usual = float(parts.profiles.timeout_of(target.agent) or 0)  # msgspec encodes no subclass of float
        if message.answer is not None:
            check_answer_options(message.answer, message.client_tools)
        if message.client_tools or message.tool_results:
            self._check_tools(message, target.agent)
        if message.model is not None:
            self._check_model(message.model, target.agent)
        return RunRequest(
            principal=principal,
            session=target.session,
            run_id=message.run or _new_run_id(),
            text=target.text,
            agent=target.agent,
            role=target.role,
            priority=find_priority(parts.router, message.source, target.session, said=message.priority).priority,
            timeout=usual if message.timeout is None else message.timeout,
            retry_safe=message.retry_safe,
            lane=message.lane,
            mode=mode or self._mode(target.session, message.source),
            images=message.images,
            source=message.source,
            spawn=message.spawn,
            depth=origin.depth,
            nested=origin.nested,
            blocks=message.blocks,
            client_tools=message.client_tools,
            tool_results=message.tool_results,
            answer=message.answer,
            model=message.model,
            from_session=from_session,
            traceparent=message.traceparent,
            tracestate=message.tracestate,
        )

    def _check_tools(self, message: AgentRequest, agent: str) -> None:
        """Raise UsageError for tools that no worker of that agent could take."""
        if not self._profile_cache.parts.profiles.traits_of(agent).takes_client_tools:
            raise UsageError(f"the agent {agent!r} takes no tools from its client; ask another agent")
        check_client_tools(message.client_tools, message.tool_results)

    def _check_model(self, model: str, agent: str) -> None:
        """Raise UsageError for another provider than the agent's definition names: its keys are for that one."""
        provider, slash, _ = model.partition("/")
        profiles = self._profile_cache.parts.profiles
        own = profiles.provider_of(agent)
        if slash and own is not None and provider != own and profiles.traits_of(agent).fixed_provider:
            raise UsageError(
                f"agent {agent} uses the provider {own}, and its definition allows no other; got {model!r}"
            )

    def _mode(self, session: str, source: MessageSource | None) -> QueueMode:
        """The session's own mode, else the channel's, else the one for all."""
        known = self._sessions.get(session)
        if known is not None and known.queue_mode is not None:
            return known.queue_mode
        queue = self._settings.value.queue
        return queue.channels.get(source.channel, queue.mode) if source is not None else queue.mode

    # --- acceptance -------------------------------------------------------------------------------------------------

    def _accept(self, request: RunRequest, said: str) -> Run:
        """``said``: the message as it came, which identifies a duplicate."""
        earlier = None if request.source is None else self._find_duplicate(request, request.source, said)
        if earlier is not None:
            return earlier
        try:
            run, is_new = self._run_registry.accept(request, _request_body(request, said))
            if is_new:
                self._enqueue(run)
        except PoolError:
            self._forget_message(request, said)
            raise
        return run

    def _find_duplicate(self, request: RunRequest, source: MessageSource, said: str) -> Run | None:
        """The run that the same message of a channel has started already."""
        key = self._dedupe.check(source, _fingerprint(request, said), request.key, trio.current_time())
        if key is None or key == request.key:
            return None
        principal, session, run_id = key
        return self._run_registry.get(principal, run_id, session)

    def _forget_message(self, request: RunRequest, said: str) -> None:
        """The message was refused after all: when it comes again it is new."""
        if request.source is not None:
            self._dedupe.discard(request.source, _fingerprint(request, said))

    def _ensure_session(self, request: RunRequest) -> SessionEntry:
        key, agent, role = request.session, request.agent, request.role
        source, run, giver = request.source, request.key, request.from_session
        return self._sessions.ensure(key, agent, role, source=source, run=run, from_session=giver)

    def _enqueue(self, run: Run) -> None:
        """Give a new run its place in a lane, then publish it. No step in between can be seen from outside."""
        request = run.request
        with self._run_registry.transaction():
            try:
                entry = self._sessions.get(request.session) if request.is_quiet else None
                if entry is None:
                    entry = self._ensure_session(request)
                self._scheduler.submit(run, awaits_person=entry.status is SessionStatus.PAUSED)
            except PoolError:
                self._run_registry.discard(run)
                raise

    async def _run_command(self, command: ParsedCommand, request: RunRequest, said: str) -> Run:
        """A slash command is carried out at once and never waits for the session; its answer is the run's outcome.

        It is stored when it is done: a command that a crash cut off was never accepted. Without a message id the same
        words are another command.
        """
        source = request.source
        has_id = source is not None and source.message_id is not None
        earlier = self._find_duplicate(request, source, said) if source and has_id else None
        if earlier is not None:
            return earlier
        run, is_new = self._run_registry.accept(request, _request_body(request, said))
        if not is_new:
            return run
        try:
            self._ensure_session(request)
            reply = await self._commands.execute(command, request)
        except BaseException as exc:
            self._run_registry.discard(run)
            self._forget_message(request, said)
            error = exc if isinstance(exc, PoolError) else RunAborted("the client disconnected")
            outcome = outcome_of_error(run, error, ended_at=self._run_registry.clock())
            run.settle(outcome)  # for callers that share its key
            raise
        await self._finish(run, reply)
        return run

    async def _accept_dropped(self, message: AgentRequest, target: RunTarget, principal: str) -> Run:
        """A hook has dropped the message: its run ends before it begins, silently."""
        request = self._request(message, target, principal, QueueMode.FOLLOWUP, RunOrigin())
        run, is_new = self._run_registry.accept(request, _request_body(request, message.text))
        if is_new:
            await self._finish(run, "", silent=True)
        return run

    async def _finish(self, run: Run, reply: str, *, silent: bool = False) -> None:
        outcome = RunOutcome(
            run_id=run.request.run_id,
            session=run.request.session,
            status="ok",
            text=reply,
            accepted_at=run.record.accepted_at,
            ended_at=self._run_registry.clock(),
            silent=silent,
        )
        self._run_registry.settle([(run, outcome)], self._run_registry.announce_ended(run, outcome))
        await run.wait()


def _new_run_id() -> str:
    return os.urandom(16).hex()


def _request_body(request: RunRequest, said: str) -> dict[str, object]:
    """What a request is compared by under a known key: what its caller ``said``, before any hook."""
    return {
        "text": said,
        "agent": request.agent,
        "role": request.role,
        "lane": request.lane,
        "images": request.images,
        "client_tools": request.client_tools or None,
        "tool_results": request.tool_results or None,
        "answer": request.answer,
        "model": request.model,
    }


def _fingerprint(request: RunRequest, said: str) -> str:
    """What identifies a channel's message again: of one that is more than its text, all of it counts."""
    return said if request.is_plain else hash_body(_request_body(request, said))
