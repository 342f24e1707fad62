"""The run that is on: who started it, who has joined it, and when it is really over.

Never are two prompts under way at once: pi accepts both and loses the second in silence. A text for a run that is on
(``steer``, ``follow_up``, a prompt with a streaming behaviour) is sent as a prompt with ``streamingBehavior``, so that
one which arrives after the end continues the run instead of riding on somebody else's next prompt.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from errors import WorkerRefused
from rpc.pi.events import Done, QueueUpdate, RunStart, error_text
from rpc.pi.link import Forward, Link
from rpc.pi.messages import Abort, GetState, PiLine, PiState, Prompt
from rpc.pi.procedures import decode
from rpc.pi.run_state import Phase, Run, Sign, after
from wire.messages import PromptResult

MAX_HELD = 64
"""Texts that wait here until pi can take them."""
RESTART_GRACE = 10.0
"""Seconds a retry may be late before pi is asked whether it still means it."""
RECHECK = 0.25
"""Seconds until pi is asked again when it says that it streams, and shows no run."""


class _Entry(NamedTuple):
    """A text on its way into a run. ``growth``: how often pi's queue had grown when it was sent.

    ``raw``: the command as a front end has written it, which is what pi is sent then.
    """

    request_id: str
    prompt: Prompt
    is_prompt: bool
    run: Run
    growth: int = 0
    raw: Forward | None = None


class Runs:
    """``drain(done)`` drops what is left in pi's queue after an abort and calls ``done()``, whether it could or not."""

    def __init__(self, link: Link, drain: Callable[[Callable[[], None]], None]) -> None:
        self._link = link
        self._drain = drain
        self._phase = Phase.IDLE
        self._held: deque[_Entry] = deque()
        self._in_flight: _Entry | None = None
        self._will_start = False  # a text was accepted and not queued: ``agent_start`` must come before the next one
        self._queued = 0
        self._growth = 0
        self._question: object | None = None  # the one question whose answer counts
        self._must_ask = False
        self._ask_at: float | None = None
        self._will_retry = False
        self._give_up_at: float | None = None
        self._on_idle: list[Callable[[], None]] = []
        self._count = 0
        self.settles = False
        """Whether pi says ``agent_settled``; releases before 0.80.4 do not."""
        self.run: Run | None = None

    # --- what others ask ---

    @property
    def phase(self) -> Phase:
        """Where the run is."""
        return self._phase

    @property
    def is_running(self) -> bool:
        """Whether a run is on, or on its way."""
        return self._phase is not Phase.IDLE

    @property
    def is_backing_off(self) -> bool:
        """Whether pi waits before a retry: it takes a prompt then, and goes on with that one instead."""
        return self._phase is Phase.RESTARTING and self._will_retry

    @property
    def is_aborting(self) -> bool:
        """Whether the run that is on is being ended."""
        return self.run is not None and self.run.aborting

    @property
    def held(self) -> int:
        """Texts that wait here."""
        return len(self._held)

    @property
    def queued(self) -> int:
        """Texts that wait in pi."""
        return self._queued

    # --- what callers want ---

    def start(self, request_id: str, prompt: Prompt, run_id: str | None, raw: Forward | None = None) -> None:
        """A prompt, when no run is on."""
        run = self._begin(run_id)
        run.waiting.append(request_id)
        self._send(_Entry(request_id, prompt, is_prompt=True, run=run, raw=raw))

    def join(self, request_id: str, prompt: Prompt, *, is_prompt: bool, raw: Forward | None = None) -> None:
        """A text for the run that is on. A prompt's answer is the end of the run; a steer's, that pi has it."""
        run = self.run
        if run is None or run.aborting or len(self._held) >= MAX_HELD:
            why = f"{MAX_HELD} texts wait for this run" if self._held else "the run is being aborted"
            self._link.refuse(request_id, "busy", why)
            return
        self._held.append(_Entry(request_id, prompt, is_prompt=is_prompt, run=run, raw=raw))
        self._release()

    def begin_abort(self, *, keep_queue: bool) -> None:
        """The run is to end. What has not reached pi never will: prompts end with the run, steers are refused."""
        if self.run is None:
            return
        self.run.aborting = True
        self.run.keep_queue = keep_queue
        while self._held:
            entry = self._held.popleft()
            if entry.is_prompt:
                self.run.waiting.append(entry.request_id)
            else:
                self._link.refuse(entry.request_id, "aborted", "the run was aborted before the text reached it")

    def when_idle(self, call: Callable[[], None], give_up_at: float | None = None) -> None:
        """Call once no run is on: now, at its end, or at ``give_up_at``, when the run is given up as lost."""
        if not self.is_running:
            call()
            return
        self._on_idle.append(call)
        if give_up_at is not None:
            self._give_up_at = give_up_at

    def lose(self) -> None:
        """The session has changed, or the run would not end: pi will not tell its end, so it is told here."""
        self._give_up_at = None
        if self.run is not None and self._phase is not Phase.DRAINING:  # that ends by itself, with a switch of its own
            self.run.cut_off()
            self._over()

    def session_replaced(self) -> None:
        """Another conversation: no run of the old one goes on, and its queue is gone."""
        self.lose()
        if self._queued:
            self._queued = 0
            run_id, seq = self._link.stamp(self.run.id if self.run else None)
            self._link.event("queue_update", QueueUpdate(run_id=run_id, seq=seq))

    # --- what pi tells ---

    def agent_start(self) -> None:
        """Pi runs: for a prompt, a retry, after a compaction, or because an extension wants it to."""
        self._move(Sign.AGENT_START)
        run = self.run or self._begin(None)
        self._will_start = False
        if not run.announced:
            run.announced = True
            run_id, seq = self._link.stamp(run.id)
            self._link.event("run_start", RunStart(run_id=run_id, seq=seq))
        if run.aborting:  # the abort came between a retry's wait and its start, and had nothing to end
            self._link.send(Abort(), _ignore)
        self._release()

    def agent_end(self, *, will_retry: bool | None) -> None:
        """The run is over, unless something says otherwise before the answer to the question that is asked now."""
        self._move(Sign.AGENT_END)
        if will_retry:
            self._restarts(Sign.RETRY, 0)
        else:
            self._must_ask = self._phase is Phase.ENDING

    def agent_settled(self) -> None:
        """Newer releases: the run is over, retries and all."""
        self.settles = True
        if self._phase in (Phase.ENDING, Phase.RESTARTING) and self._in_flight is None and not self._will_start:
            self._conclude()

    def retry_starts(self, delay: float) -> None:
        """The run failed and will start again after ``delay`` seconds."""
        self._restarts(Sign.RETRY, delay)

    def retry_ends(self, *, success: bool) -> None:
        """The retries were given up, or the last one went well."""
        if not success:
            self._move(Sign.RETRY_GIVEN_UP)
            self._must_ask = self._phase is Phase.ENDING

    def compaction_starts(self) -> None:
        """After a run this is pi's own doing, and the run is not over; elsewhere it is none of the run's business."""
        self._move(Sign.COMPACTION_START)

    def compaction_ends(self, *, goes_on: bool) -> None:
        """Pi goes on with the run after an overflow, and where texts wait in its queue."""
        if self._phase is not Phase.COMPACTING:
            return
        if goes_on:
            self._restarts(Sign.COMPACTION_CONTINUES, 0)
        else:
            self._move(Sign.COMPACTION_END)
            self._must_ask = True

    def queue_is(self, length: int) -> None:
        """Pi's queue has changed."""
        if length > self._queued:
            self._growth += 1
        self._queued = length

    def end_step(self) -> None:
        """All lines of a block are worked off: ask what no line has told."""
        if self._must_ask and self._in_flight is None:
            self._must_ask = False
            if self._phase in (Phase.STARTING, Phase.ENDING):
                self._ask()

    # --- time ---

    def next_deadline(self) -> float | None:
        """When ``expire`` has something to do."""
        return min((at for at in (self._ask_at, self._give_up_at) if at is not None), default=None)

    def expire(self, now: float) -> None:
        """Ask again after a silence; give up a run that does not end."""
        if self._ask_at is not None and self._ask_at <= now:
            self._ask()
        if self._give_up_at is not None and self._give_up_at <= now:
            self.lose()

    # --- inside ---

    def _begin(self, run_id: str | None) -> Run:
        self._count += 1
        self.run = Run(run_id or f"r{self._count}")
        self._move(Sign.PROMPT)
        return self.run

    def _move(self, sign: Sign) -> None:
        moved = after(self._phase, sign)
        if moved is not self._phase:
            self._phase = moved
            self._question = None
            self._ask_at = None
            self._must_ask = False

    def _restarts(self, sign: Sign, delay: float) -> None:
        self._move(sign)
        self._will_retry = sign is Sign.RETRY
        if self._phase is Phase.RESTARTING:
            self._ask_at = self._link.now + delay + RESTART_GRACE

    def _release(self) -> None:
        """Send the next text that waits, when pi is sure to put it into its queue."""
        ready = self._phase is Phase.RUNNING and self._in_flight is None and not self._will_start
        if ready and self._held:
            self._send(self._held.popleft())

    def _send(self, entry: _Entry) -> None:
        entry = entry._replace(growth=self._growth)
        self._in_flight = entry
        if entry.raw is None:
            self._link.send(entry.prompt, lambda line: self._sent(entry, line))
        else:
            self._link.send_forward(entry.raw, entry.prompt.type, lambda line: self._sent(entry, line))

    def _sent(self, entry: _Entry, line: PiLine) -> None:
        if self.run is not entry.run:  # given up meanwhile
            self._link.refuse(entry.request_id, "aborted", "the run has ended")
            return
        self._in_flight = None
        if not line.success:
            self._refused(entry, line)
        elif entry.prompt.streaming_behavior is None:
            # a command of an extension is answered last, perhaps after the runs that it has started have ended
            self._must_ask = self._must_ask or self._phase in (Phase.STARTING, Phase.ENDING)
        elif self._growth != entry.growth:
            self._accept(entry)
            self._must_ask = self._must_ask or self._phase is Phase.ENDING
        elif self._phase is Phase.RUNNING and entry.prompt.message.startswith("/"):
            self._link.answer(entry.request_id, PromptResult() if entry.is_prompt else {})  # an extension's command
        else:
            self._accept(entry)
            self._not_queued()
        self._release()

    def _accept(self, entry: _Entry) -> None:
        if entry.is_prompt:
            entry.run.waiting.append(entry.request_id)
        else:
            self._link.answer(entry.request_id, {})

    def _not_queued(self) -> None:
        """The run had ended when the text came: it goes on with that text."""
        if self._phase is Phase.ENDING:
            self._move(Sign.PROMPT)
        if self._phase is Phase.STARTING:
            self._must_ask = True
        else:
            self._will_start = True

    def _refused(self, entry: _Entry, line: PiLine) -> None:
        message = error_text(line)
        code = "busy" if "already processing" in message else "refused"
        if entry.request_id in entry.run.waiting:
            entry.run.waiting.remove(entry.request_id)
        self._link.refuse(entry.request_id, code, message)
        if self._phase is Phase.STARTING:
            self._conclude()
        else:
            self._must_ask = self._must_ask or self._phase is Phase.ENDING

    def _ask(self) -> None:
        """Ask for the state: whatever continues a run is told before the answer."""
        question = object()
        self._question = question
        self._ask_at = None
        self._link.send(GetState(), lambda line: self._told(question, line))

    def _told(self, question: object, line: PiLine) -> None:
        if question is not self._question:
            return
        self._question = None
        if self._in_flight is not None:
            self._must_ask = True
        elif self._will_start or _goes_on(line):
            self._ask_at = self._link.now + RECHECK
            self._will_start = False
        else:
            self._conclude()

    def _conclude(self) -> None:
        """Pi has nothing to do: hand it what waits here, drop what an abort has left there, or tell the end."""
        run = self.run
        if run is not None and self._held:
            self._move(Sign.PROMPT)
            self._send(self._held.popleft())
        elif run is not None and run.aborting and self._queued and not run.keep_queue:
            self._move(Sign.DRAIN)
            self._drain(self._over)
        else:
            self._over()

    def _over(self) -> None:
        run, self.run = self.run, None
        self._move(Sign.OVER)
        self._in_flight = None
        self._will_start = False
        self._give_up_at = None
        if run is not None:
            result = run.result()
            if run.announced:
                run_id, seq = self._link.stamp(run.id)
                self._link.event("done", Done(stop_reason=result.stop_reason, run_id=run_id, seq=seq))
            for request_id in run.waiting:
                self._link.answer(request_id, result)
        callbacks, self._on_idle = self._on_idle, []
        for call in callbacks:
            call()


def _goes_on(line: PiLine) -> bool:
    if not line.success:
        return False
    try:
        state = decode(line.data, PiState)
    except WorkerRefused:
        return False
    return state.is_streaming or state.is_compacting


def _ignore(_line: PiLine) -> None:
    """An answer that nobody waits for."""
