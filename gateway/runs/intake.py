"""The way in: from what a front end hands over to an accepted run. Whose it is, whether it is new, when it may run."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from errors import PoolClosed, PoolError, RunAborted, UsageError
from gateway.hook_runner import HookRunner
from gateway.hooks import Drop, MessageSeen
from gateway.runs.arrivals import Dedupe, SessionOrder
from gateway.runs.index import hash_body
from gateway.runs.registry import Ledger
from gateway.runs.requests import AgentRequest
from gateway.runs.run import Run, RunOutcome, RunRequest, outcome_of_error
from gateway.sessions.admin import CommandDesk
from gateway.sessions.agent_profiles import ProfileShelf
from gateway.sessions.commands import COMMANDS, Parsed, QueueOnce, parse_command
from gateway.sessions.sessions import Sessions, SessionStatus
from gateway.settings import GatewaySettings, QueueMode
from gateway.turns.client_tools import check_answer, check_client_tools
from gateway.turns.holds import Hold
from gateway.turns.scheduler import Conductor
from heartbeat.ports import BeatRequest
from pool import Lease
from router.keys import check_session_key
from router.route import RouteDecision, find_priority, route
from router.source import MessageSource
from rpc.passthrough import RawRequest
from store.records import RunKey


class Address(NamedTuple):
    """Whose a message is."""

    session: str
    agent: str
    role: str
    text: str


class Lineage(NamedTuple):
    """Where a run comes from: how many delegations deep, with an ancestor that holds a worker or not, which session."""

    depth: int = 0
    nested: bool = False
    from_session: str | None = None


class Intake:
    """Accepts messages. What it refuses raises before anything is kept; what it accepts is durable when it returns."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        ledger: Ledger,
        sessions: Sessions,
        shelf: ProfileShelf,
        conductor: Conductor,
        hooks: HookRunner,
        commands: CommandDesk,
        data_dir: Path,
        start_soon: Callable[..., None],
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._sessions = sessions
        self._shelf = shelf
        self._conductor = conductor
        self._hooks = hooks
        self._commands = commands
        self._data_dir = data_dir
        self._start_soon = start_soon
        self._order = SessionOrder()
        self._dedupe: Dedupe[RunKey] = Dedupe(settings.dedupe)
        self.is_closed = False

    def reconfigure(self, settings: GatewaySettings) -> None:
        """New limits."""
        self._settings = settings
        self._dedupe.reconfigure(settings.dedupe)

    def route(self, source: MessageSource, text: str) -> RouteDecision:
        """Whose a message would be, with every layer's reasons. Raises UsageError."""
        parts = self._shelf.parts
        return route(parts.router, parts.profiles, source, text, data_dir=self._data_dir, commands=COMMANDS)

    async def accept(self, message: AgentRequest, principal: str, lineage: Lineage = Lineage()) -> Run:  # noqa: B008  # a constant
        """The run of a message: a new one, or the one that the same key, or the same message, stands for already.

        Raises UsageError, Conflict, PoolSaturated, PoolClosed.
        """
        self._check_open()
        address = self._address(message)
        text = await self._received(address, message.source)
        if text is None:
            return await self._dropped(message, address, principal)
        command = parse_command(text)
        mode = message.queue
        if isinstance(command, QueueOnce):
            mode, text, command = message.queue or command.mode, command.text, None
        if not text.strip() and not message.images and not message.tool_results:
            raise UsageError("the message is empty; say something")
        request = self._request(message, address._replace(text=text), principal, mode, lineage)
        if command is not None:
            if request.tool_results:
                raise UsageError("a slash command is carried out by the supervisor and takes no tool results")
            return await self._command(command, request, message.text)
        return await self._take_up(request, message.text)

    async def accept_on(self, hold: Hold, message: AgentRequest, principal: str) -> Run:
        """The run of a message on a worker that its caller holds: it waits for nobody. Raises as ``accept`` does."""
        self._check_open()
        entry = self._sessions.get(hold.session)
        if entry is None or hold.lease is None:
            raise UsageError(f"the hold on session {hold.session} has ended", session=hold.session)
        if parse_command(message.text) is not None:
            raise UsageError("a slash command is no message for a worker; send it without the hold")
        if message.model is not None:
            raise UsageError("a held worker keeps its model; send the message without the hold, or without a model")
        address = Address(hold.session, entry.agent, entry.role, message.text)
        request = self._request(message, address, principal, QueueMode.FOLLOWUP, Lineage())
        run, is_new = self._ledger.accept(request, _body(request, message.text))
        if is_new:
            self._ledger.announce(run)
            self._start_soon(self._run_on, hold, hold.lease, run)
        await self._ledger.settled(run)
        return run

    async def _run_on(self, hold: Hold, lease: Lease, run: Run) -> None:
        await self._conductor.run_on(lease, run)
        if self.is_closed:
            hold.give_back_unused()

    def accept_raw(self, session: str, text: str, principal: str, raw: RawRequest) -> Run:
        """The run of a prompt that a front end of the session has written itself: a turn of its own, without a limit.

        ``text`` is what is known of it elsewhere. It is durable before it reaches the worker, as every run is. Raises
        PoolSaturated, PoolClosed.
        """
        self._check_open()
        entry = self._sessions.get(session)
        request = RunRequest(
            principal=principal,
            session=session,
            run_id=uuid.uuid4().hex,
            text=text,
            agent=entry.agent if entry else self._shelf.parts.router.default_agent,
            role=entry.role if entry else "default",
            timeout=0.0,
            mode=QueueMode.FOLLOWUP,
            attached=True,
        )
        run, _ = self._ledger.accept(request, _body(request, text))
        run.raw = raw
        self._place(run)
        return run

    async def accept_beat(self, beat: BeatRequest, principal: str) -> Run:
        """The run of a heartbeat or a scheduled task: taken as it is, whatever its text looks like. Raises likewise."""
        self._check_open()
        default = self._shelf.parts.router.default_agent
        session, agent, role = self._sessions.whose(beat.session, beat.agent, None, default=default)
        self._shelf.check(agent, role)
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
        return await self._take_up(request, beat.text)

    def _check_open(self) -> None:
        if self.is_closed:
            raise PoolClosed("the supervisor is shutting down and takes no new runs")

    # --- whose it is --------------------------------------------------------------------------------------------------

    def _address(self, message: AgentRequest) -> Address:
        if (message.source is None) == (message.session is None):
            raise UsageError("a message has either a session or a source; give one of them")
        if message.source is not None:
            decision = self.route(message.source, message.text)
            self._shelf.check(decision.agent, decision.role)
            return Address(decision.session, decision.agent, decision.role, decision.text)
        default = self._shelf.parts.router.default_agent
        session, agent, role = self._sessions.whose(message.session or "", message.agent, message.role, default=default)
        self._shelf.check(agent, role)
        return Address(session, agent, role, message.text)

    async def _received(self, address: Address, source: MessageSource | None) -> str | None:
        """What the hooks make of the text; None = nothing is to be done."""
        if not self._hooks.has("message:received"):
            return address.text
        seen = MessageSeen(session=address.session, text=address.text, source=source)
        async with self._order.turn(address.session):  # a slow hook must not reorder messages
            heard = await self._hooks.filter("message:received", seen)
        return None if isinstance(heard, Drop) else heard.text

    def _request(
        self, message: AgentRequest, address: Address, principal: str, mode: QueueMode | None, lineage: Lineage
    ) -> RunRequest:
        parts = self._shelf.parts
        timeout = self._shelf.timeout_of(address.agent) if message.timeout is None else message.timeout
        self._check_tools(message, address.agent)
        self._check_model(message.model, address.agent)
        return RunRequest(
            principal=principal,
            session=address.session,
            run_id=message.run or uuid.uuid4().hex,
            text=address.text,
            agent=address.agent,
            role=address.role,
            priority=find_priority(parts.router, message.source, address.session, said=message.priority).priority,
            timeout=timeout,
            retry_safe=message.retry_safe,
            lane=message.lane,
            mode=mode or self._mode(address.session, message.source),
            images=message.images,
            source=message.source,
            spawn=message.spawn,
            depth=lineage.depth,
            nested=lineage.nested,
            blocks=message.blocks,
            client_tools=message.client_tools,
            tool_results=message.tool_results,
            answer=message.answer,
            model=message.model,
            from_session=lineage.from_session or _origin(message.source),
        )

    def _check_tools(self, message: AgentRequest, agent: str) -> None:
        """Refuse before anything is kept what no worker of that agent could do. Raises UsageError."""
        check_answer(message.answer, message.client_tools)
        if not (message.client_tools or message.tool_results):
            return
        if self._shelf.parts.profiles.dialect_of(agent) == "pi":
            raise UsageError(f"the agent {agent!r} speaks pi, which takes no tools from its client; ask another agent")
        check_client_tools(message.client_tools, message.tool_results)

    def _check_model(self, model: str | None, agent: str) -> None:
        """Raise UsageError for another provider than the agent's definition names: its keys are for that one."""
        provider, slash, _ = (model or "").partition("/")
        profiles = self._shelf.parts.profiles
        own = profiles.provider_of(agent)
        if slash and own is not None and provider != own and profiles.dialect_of(agent) == "native":
            raise UsageError(
                f"agent {agent} uses the provider {own}, and its definition allows no other; got {model!r}"
            )

    def _mode(self, session: str, source: MessageSource | None) -> QueueMode:
        """The session's own mode, else the channel's, else the one for all."""
        known = self._sessions.get(session)
        if known is not None and known.queue_mode is not None:
            return known.queue_mode
        queue = self._settings.queue
        return queue.channels.get(source.channel, queue.mode) if source is not None else queue.mode

    # --- taking it up -------------------------------------------------------------------------------------------------

    async def _take_up(self, request: RunRequest, said: str) -> Run:
        """``said``: the message as it came, by which it is known again."""
        earlier = self._earlier(request, said)
        if earlier is not None:
            await self._ledger.settled(earlier)
            return earlier
        try:
            run, is_new = self._ledger.accept(request, _body(request, said))
            if is_new:
                self._place(run)
        except PoolError:
            self._forget(request, said)
            raise
        await self._ledger.settled(run)
        return run

    def _earlier(self, request: RunRequest, said: str) -> Run | None:
        """The run that the same message of a channel has started already."""
        if request.source is None:
            return None
        key = self._dedupe.check(request.source, _fingerprint(request, said), request.key, trio.current_time())
        if key is None or key == request.key:
            return None
        principal, session, run_id = key
        return self._ledger.known(principal, run_id, session)

    def _forget(self, request: RunRequest, said: str) -> None:
        """The message was refused after all: when it comes again it is new."""
        if request.source is not None:
            self._dedupe.forget(request.source, _fingerprint(request, said))

    def _place(self, run: Run) -> None:
        """Give a new run its place, then tell of it. No step in between can be seen from outside."""
        request = run.request
        try:
            if not (request.is_quiet and request.session in self._sessions):
                self._sessions.use(
                    request.session, request.agent, request.role, source=request.source, run=request.run_id
                )
            self._conductor.submit(run)
        except PoolError:
            self._ledger.discard(run)
            raise
        entry = self._sessions.get(request.session)
        self._ledger.announce(run, awaits_person=entry is not None and entry.status is SessionStatus.PAUSED)

    async def _command(self, command: Parsed, request: RunRequest, said: str) -> Run:
        """A slash command is carried out at once and never waits for the session; its answer is the run's outcome.

        It is written down when it is done: a command that a crash cut off was never accepted. Without a message id
        the same words are another command: somebody asks for the status again.
        """
        has_id = request.source is not None and request.source.message_id is not None
        earlier = self._earlier(request, said) if has_id else None
        if earlier is not None:
            await self._ledger.settled(earlier)
            return earlier
        run, is_new = self._ledger.accept(request, _body(request, said))
        if not is_new:
            await self._ledger.settled(run)
            return run
        try:
            self._sessions.use(request.session, request.agent, request.role, source=request.source, run=request.run_id)
            reply = await self._commands.execute(command, request)
        except BaseException as exc:
            self._ledger.discard(run)
            self._forget(request, said)
            error = exc if isinstance(exc, PoolError) else RunAborted("whoever gave the command has left")
            run.settle(outcome_of_error(run, error, ended_at=self._ledger.now()))  # for those who share its key
            raise
        await self._conclude(run, reply)
        return run

    async def _dropped(self, message: AgentRequest, address: Address, principal: str) -> Run:
        """A hook has dropped the message: its run ends before it begins, and says nothing."""
        request = self._request(message, address, principal, QueueMode.FOLLOWUP, Lineage())
        run, is_new = self._ledger.accept(request, _body(request, message.text))
        if is_new:
            await self._conclude(run, "", silent=True)
        await self._ledger.settled(run)
        return run

    async def _conclude(self, run: Run, reply: str, *, silent: bool = False) -> None:
        outcome = _said(run, reply, self._ledger.now(), silent=silent)
        await self._ledger.release([(run, outcome)], self._ledger.conclude(run, outcome))


def _body(request: RunRequest, said: str) -> dict[str, object]:
    """What tells a repeated request from another one under the same key: what its caller ``said``, not a hook."""
    return {
        "text": said,
        "agent": request.agent,
        "role": request.role,
        "lane": request.lane,
        "images": [msgspec.to_builtins(image) for image in request.images],
        "client_tools": request.client_tools or None,
        "tool_results": request.tool_results or None,
        "answer": request.answer,
        "model": request.model,
    }


def _fingerprint(request: RunRequest, said: str) -> str:
    """By what a channel's message is known again: of one that is more than its text, all of it counts."""
    return said if request.is_plain else hash_body(_body(request, said))


def _origin(source: MessageSource | None) -> str | None:
    """The session that the message comes from, in its one spelling. Raises UsageError for what is no key."""
    return None if source is None or source.from_session is None else check_session_key(source.from_session)


def _said(run: Run, text: str, now: float, *, silent: bool = False) -> RunOutcome:
    return RunOutcome(
        run_id=run.request.run_id,
        session=run.request.session,
        status="ok",
        text=text,
        accepted_at=run.accepted_at,
        ended_at=now,
        silent=silent,
    )
