"""The run that is on: who started it, who has joined it, and when it is really over.

Never are two prompts under way at once: pi accepts both and loses the second in silence. A text for a run that is on
(``steer``, ``follow_up``, a prompt with a streaming behaviour) is sent as a prompt with ``streamingBehavior``, so that
one which arrives after the end continues the run instead of going with another caller's next prompt.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from errors import WorkerRefused
from rpc.pi.events import error_text
from rpc.pi.link import ForwardedCommand, PiLink
from rpc.pi.messages import PiAbort, PiGetState, PiLine, PiPrompt, PiState
from rpc.pi.procedures import decode_answer
from rpc.pi.run_state import PhaseEvent, PiRun, PiRunPhase, next_phase
from rpc.run_events import Done, QueueUpdate, RunStart
from wire.messages import PromptResult

MAX_WAITING_TEXTS = 64
"""Texts that wait here until pi can take them."""
RESTART_GRACE = 10.0
"""Seconds a retry may be late before pi is asked whether it still means it."""
RECHECK_DELAY = 0.25
"""Seconds until pi is asked again when it says that it streams, and shows no run."""


class _PiRunInput(NamedTuple):
    """A text on its way into a run. ``growth``: how often pi's queue had grown when it was sent.

    ``raw``: the command as a front end has written it, which is what pi is sent then.
    """

    request_id: str
    prompt: PiPrompt
    is_prompt: bool
    run: PiRun
    growth: int = 0
    raw: ForwardedCommand | None = None


class PiRunController:
    """``drain(done)`` drops what is left in pi's queue after an abort and calls ``done()``, whether it could or not."""

    def __init__(self, link: PiLink, drain: Callable[[Callable[[], None]], None]) -> None:
        self._link = link
        self._drain = drain
        self.phase = PiRunPhase.IDLE
        self._waiting_texts: deque[_PiRunInput] = deque()
        self._in_flight: _PiRunInput | None = None
        self._will_start = False  # a text was accepted and not queued: ``agent_start`` must come before the next one
        self.queued = 0
        """Texts that wait in pi."""
        self._queue_growths = 0
        self._state_query: object | None = None  # the one question whose answer counts
        self._must_query = False
        self._query_at: float | None = None
        self._will_retry = False
        self._give_up_at: float | None = None
        self._on_idle: list[Callable[[], None]] = []
        self._count = 0
        self.reports_settled = False
        """Whether pi says ``agent_settled``; releases before 0.80.4 do not."""
        self.run: PiRun | None = None

    # --- what others ask ---

    @property
    def is_running(self) -> bool:
        """Whether a run is on, or on its way."""
        return self.phase is not PiRunPhase.IDLE

    @property
    def is_backing_off(self) -> bool:
        """Whether pi waits before a retry: it takes a prompt then, and goes on with that one instead."""
        return self.phase is PiRunPhase.RESTARTING and self._will_retry

    @property
    def is_aborting(self) -> bool:
        """Whether the run that is on is being ended."""
        return self.run is not None and self.run.aborting

    @property
    def waiting_count(self) -> int:
        """Texts that wait here."""
        return len(self._waiting_texts)

    # --- what callers want ---

    def start(self, request_id: str, prompt: PiPrompt, run_id: str | None, raw: ForwardedCommand | None = None) -> None:
        """A prompt, when no run is on."""
        run = self._begin_run(run_id)
        run.waiting.append(request_id)
        self._send(_PiRunInput(request_id, prompt, is_prompt=True, run=run, raw=raw))

    def join(self, request_id: str, prompt: PiPrompt, *, is_prompt: bool, raw: ForwardedCommand | None = None) -> None:
        """A text for the run that is on. A prompt's answer is the end of the run; a steer's, that pi has it."""
        run = self.run
        if run is None or run.aborting or len(self._waiting_texts) >= MAX_WAITING_TEXTS:
            why = f"{MAX_WAITING_TEXTS} texts wait for this run" if self._waiting_texts else "the run is being aborted"
            self._link.reject(request_id, "busy", why)
            return
        self._waiting_texts.append(_PiRunInput(request_id, prompt, is_prompt=is_prompt, run=run, raw=raw))
        self._send_next()

    def begin_abort(self, *, keep_queue: bool) -> None:
        """The run is to end. What has not reached pi never will: prompts end with the run, steers are refused."""
        if self.run is None:
            return
        self.run.aborting = True
        self.run.keep_queue = keep_queue
        while self._waiting_texts:
            entry = self._waiting_texts.popleft()
            if entry.is_prompt:
                self.run.waiting.append(entry.request_id)
            else:
                self._link.reject(entry.request_id, "aborted", "the run was aborted before the text reached it")

    def when_idle(self, call: Callable[[], None], give_up_at: float | None = None) -> None:
        """Call once no run is on: now, at its end, or at ``give_up_at``, when the run is given up as lost."""
        if not self.is_running:
            call()
            return
        self._on_idle.append(call)
        if give_up_at is not None:
            self._give_up_at = give_up_at

    def give_up(self) -> None:
        """The session has changed, or the run would not end: pi will not report its end, so it is reported here."""
        self._give_up_at = None
        # draining ends by itself, with a switch of its own
        if self.run is not None and self.phase is not PiRunPhase.DRAINING:
            self.run.mark_aborted()
            self._end_run()

    def session_replaced(self) -> None:
        """Another conversation: no run of the old one goes on, and its queue is gone."""
        self.give_up()
        if self.queued:
            self.queued = 0
            run_id, seq = self._link.stamp(self.run.id if self.run else None)
            self._link.emit("queue_update", QueueUpdate(run_id=run_id, seq=seq))

    # --- what pi reports ---

    def agent_start(self) -> None:
        """Pi runs: for a prompt, a retry, after a compaction, or because an extension wants it to."""
        self._transition(PhaseEvent.AGENT_START)
        run = self.run or self._begin_run(None)
        self._will_start = False
        if not run.announced:
            run.announced = True
            run_id, seq = self._link.stamp(run.id)
            self._link.emit("run_start", RunStart(run_id=run_id, seq=seq))
        if run.aborting:  # the abort came between a retry's wait and its start, and had nothing to end
            self._link.send(PiAbort(), lambda _line: None)
        self._send_next()

    def agent_end(self, *, will_retry: bool | None) -> None:
        """The run is over, unless something says otherwise before the answer to the question that is asked now."""
        self._transition(PhaseEvent.AGENT_END)
        if will_retry:
            self._expect_restart(PhaseEvent.RETRY, 0)
        else:
            self._must_query = self.phase is PiRunPhase.ENDING

    def agent_settled(self) -> None:
        """Newer releases: the run is over, retries and all."""
        self.reports_settled = True
        if (
            self.phase in (PiRunPhase.ENDING, PiRunPhase.RESTARTING)
            and self._in_flight is None
            and not self._will_start
        ):
            self._settle()

    def retry_starts(self, delay: float) -> None:
        """The run failed and will start again after ``delay`` seconds."""
        self._expect_restart(PhaseEvent.RETRY, delay)

    def retry_ends(self, *, success: bool) -> None:
        """The retries were given up, or the last one went well."""
        if not success:
            self._transition(PhaseEvent.RETRY_GIVEN_UP)
            self._must_query = self.phase is PiRunPhase.ENDING

    def compaction_starts(self) -> None:
        """After a run this is pi's own doing, and the run is not over; elsewhere it is none of the run's business."""
        self._transition(PhaseEvent.COMPACTION_START)

    def compaction_ends(self, *, goes_on: bool) -> None:
        """Pi goes on with the run after an overflow, and where texts wait in its queue."""
        if self.phase is not PiRunPhase.COMPACTING:
            return
        if goes_on:
            self._expect_restart(PhaseEvent.COMPACTION_CONTINUES, 0)
        else:
            self._transition(PhaseEvent.COMPACTION_END)
            self._must_query = True

    def queue_changed(self, length: int) -> None:
        """Pi's queue has changed."""
        if length > self.queued:
            self._queue_growths += 1
        self.queued = length

    def end_step(self) -> None:
        """All lines of a block are worked off: ask for what no line has shown."""
        if self._must_query and self._in_flight is None:
            self._must_query = False
            if self.phase in (PiRunPhase.STARTING, PiRunPhase.ENDING):
                self._query_state()

    # --- time ---

    def next_deadline(self) -> float | None:
        """When ``expire`` has something to do."""
        return min((at for at in (self._query_at, self._give_up_at) if at is not None), default=None)

    def expire(self, now: float) -> None:
        """Ask again after a silence; give up a run that does not end."""
        if self._query_at is not None and self._query_at <= now:
            self._query_state()
        if self._give_up_at is not None and self._give_up_at <= now:
            self.give_up()

    # --- inside ---

    def _begin_run(self, run_id: str | None) -> PiRun:
        self._count += 1
        self.run = PiRun(run_id or f"r{self._count}")
        self._transition(PhaseEvent.PROMPT)
        return self.run

    def _transition(self, sign: PhaseEvent) -> None:
        moved = next_phase(self.phase, sign)
        if moved is not self.phase:
            self.phase = moved
            self._state_query = None
            self._query_at = None
            self._must_query = False

    def _expect_restart(self, sign: PhaseEvent, delay: float) -> None:
        self._transition(sign)
        self._will_retry = sign is PhaseEvent.RETRY
        if self.phase is PiRunPhase.RESTARTING:
            self._query_at = self._link.now + delay + RESTART_GRACE

    def _send_next(self) -> None:
        """Send the next text that waits, when pi is sure to put it into its queue."""
        ready = self.phase is PiRunPhase.RUNNING and self._in_flight is None and not self._will_start
        if ready and self._waiting_texts:
            self._send(self._waiting_texts.popleft())

    def _send(self, entry: _PiRunInput) -> None:
        entry = entry._replace(growth=self._queue_growths)
        self._in_flight = entry
        if entry.raw is None:
            self._link.send(entry.prompt, lambda line: self._on_prompt_answer(entry, line))
        else:
            self._link.send_forward(entry.raw, entry.prompt.type, lambda line: self._on_prompt_answer(entry, line))

    def _on_prompt_answer(self, entry: _PiRunInput, line: PiLine) -> None:
        if self.run is not entry.run:  # given up meanwhile
            self._link.reject(entry.request_id, "aborted", "the run has ended")
            return
        self._in_flight = None
        if not line.success:
            self._on_rejected(entry, line)
        elif entry.prompt.streaming_behavior is None:
            # a command of an extension is answered last, perhaps after the runs that it has started have ended
            self._must_query = self._must_query or self.phase in (PiRunPhase.STARTING, PiRunPhase.ENDING)
        elif self._queue_growths != entry.growth:
            self._accept(entry)
            self._must_query = self._must_query or self.phase is PiRunPhase.ENDING
        elif self.phase is PiRunPhase.RUNNING and entry.prompt.message.startswith("/"):
            self._link.answer(entry.request_id, PromptResult() if entry.is_prompt else {})  # an extension's command
        else:
            self._accept(entry)
            self._continue_run()
        self._send_next()

    def _accept(self, entry: _PiRunInput) -> None:
        if entry.is_prompt:
            entry.run.waiting.append(entry.request_id)
        else:
            self._link.answer(entry.request_id, {})

    def _continue_run(self) -> None:
        """The run had ended when the text came: it goes on with that text."""
        if self.phase is PiRunPhase.ENDING:
            self._transition(PhaseEvent.PROMPT)
        if self.phase is PiRunPhase.STARTING:
            self._must_query = True
        else:
            self._will_start = True

    def _on_rejected(self, entry: _PiRunInput, line: PiLine) -> None:
        message = error_text(line)
        code = "busy" if "already processing" in message else "refused"
        if entry.request_id in entry.run.waiting:
            entry.run.waiting.remove(entry.request_id)
        self._link.reject(entry.request_id, code, message)
        if self.phase is PiRunPhase.STARTING:
            self._settle()
        else:
            self._must_query = self._must_query or self.phase is PiRunPhase.ENDING

    def _query_state(self) -> None:
        """Ask for the state: pi reports whatever continues a run before the answer."""
        question = object()
        self._state_query = question
        self._query_at = None
        self._link.send(PiGetState(), lambda line: self._on_state(question, line))

    def _on_state(self, question: object, line: PiLine) -> None:
        if question is not self._state_query:
            return
        self._state_query = None
        if self._in_flight is not None:
            self._must_query = True
        elif self._will_start or _is_still_active(line):
            self._query_at = self._link.now + RECHECK_DELAY
            self._will_start = False
        else:
            self._settle()

    def _settle(self) -> None:
        """Pi has nothing to do: hand it what waits here, drop what an abort has left there, or report the end."""
        run = self.run
        if run is not None and self._waiting_texts:
            self._transition(PhaseEvent.PROMPT)
            self._send(self._waiting_texts.popleft())
        elif run is not None and run.aborting and self.queued and not run.keep_queue:
            self._transition(PhaseEvent.DRAIN)
            self._drain(self._end_run)
        else:
            self._end_run()

    def _end_run(self) -> None:
        run, self.run = self.run, None
        self._transition(PhaseEvent.OVER)
        self._in_flight = None
        self._will_start = False
        self._give_up_at = None
        if run is not None:
            result = run.result()
            if run.announced:
                run_id, seq = self._link.stamp(run.id)
                self._link.emit("done", Done(stop_reason=result.stop_reason, run_id=run_id, seq=seq))
            for request_id in run.waiting:
                self._link.answer(request_id, result)
        callbacks, self._on_idle = self._on_idle, []
        for call in callbacks:
            call()


def _is_still_active(line: PiLine) -> bool:
    if not line.success:
        return False
    try:
        state = decode_answer(line.data, PiState)
    except WorkerRefused:
        return False
    return state.is_streaming or state.is_compacting
