"""The pi dialect: ``pi --mode rpc`` behind native messages. Sans-IO; implements ``rpc.dialect.Dialect``."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from errors import UsageError, WorkerRefused
from rpc.dialect import Step
from rpc.params import decode_params
from rpc.passthrough import RawObject, pair_lines
from rpc.pi import procedures
from rpc.pi.dialogs import DialogHandler, UiAnswer
from rpc.pi.event_handler import PiEventHandler
from rpc.pi.events import error_text
from rpc.pi.link import PiLink
from rpc.pi.messages import (
    PiAbortBash,
    PiBashParams,
    PiGetState,
    PiLine,
    PiNewSessionParams,
    PiNoParams,
    PiPrompt,
    PiSetModelParams,
    PiSetThinkingParams,
    PiState,
    PiSwitchSessionParams,
)
from rpc.pi.passthrough import PiPassthrough
from rpc.pi.procedure_runner import ProcedureRunner
from rpc.pi.procedures import Consent, RuntimeSettings
from rpc.pi.run_state import PiRunPhase
from rpc.pi.runs import PiRunController
from rpc.settings import RpcSettings
from wire.framing import decode_block
from wire.messages import AbortParams, CompactParams, PromptParams, Ready, TextParams
from wire.run_text import answer_instructions

P = TypeVar("P", bound=msgspec.Struct)

_NO_MODEL = (
    "pi has no usable model: configure a provider and its key in the agent dir (models.json, auth.json, settings.json) "
    "or in the environment, or name one with --provider and --model"
)


class PiDialect:
    """Implements ``rpc.dialect.Dialect`` for pi 0.73 and later.

    Beside the contract:

    - ``attended``: whether a front end is there to answer dialogs of extensions; otherwise each dialog is
      cancelled at once. Those that would keep ``new_session`` and ``switch_session`` from happening are confirmed.
    - ``in_memory``: it runs with ``--no-session``. It has the conversation that it begins with, and no other one.
    - The event ``start_failed{message}`` instead of ``ready``: pi lives, but cannot work.
    - ``bash{command}`` (only with ``allow_bash``) and ``ui_respond{id, value|confirmed|cancelled}`` are further
      methods.
    - A prompt that joins a run (``streaming_behavior``) is answered with the end of that run. ``steer`` and
      ``follow_up`` are answered when pi has the text, and refused with ``idle`` when no run is on: pi would keep the
      text in silence for the next prompt.
    - ``abort`` answers ``{left_in_queue}`` when the run has ended. What waits in pi's queue is dropped: by a command,
      or where a release has none by opening the transcript again. Without a transcript the texts of such a release
      stay, and ``left_in_queue`` is their number.
    - ``new_session``, ``switch_session`` and ``compact`` in a run abort it first; after ``abort_grace`` its end is
      published without pi.
    - A process is ended by closing its stdin, once nothing more is expected of it: pi drops what it has not written.
    """

    name = "pi"
    retire_reason = None
    has_lost_conversation = False
    conversation_facts = None

    def __init__(
        self,
        settings: RpcSettings,
        *,
        allow_bash: bool,
        attended: Callable[[], bool] = lambda: False,
        in_memory: bool = False,
    ) -> None:
        self._decoder = msgspec.json.Decoder(PiLine)
        self._runtime_settings = RuntimeSettings()
        self._consent = Consent()
        self._in_memory = in_memory
        self._link = PiLink()
        self._procedure_runner = ProcedureRunner(self._link, settings.abort_grace)
        self._runs = PiRunController(self._link, self._drain)
        self._procedure_runner.attach_runs(self._runs)
        self._dialogs = DialogHandler(self._link, self._runs, self._consent, settings.ui_timeout, attended)
        self._event_handler = PiEventHandler(self._link, self._runs, self._dialogs)
        self._passthrough = PiPassthrough(self._link, self._runs, self._dialogs, allow_bash=allow_bash)
        self._methods: dict[str, Callable[[str, msgspec.Raw], None]] = {
            "prompt": self._prompt,
            "steer": self._steer,
            "follow_up": self._follow_up,
            "abort": self._abort,
            "new_session": self._new_session,
            "switch_session": self._switch_session,
            "compact": self._compact,
            "get_state": partial(self._ask, lambda: procedures.get_state(self._runs.waiting_count)),
            "get_messages": partial(self._ask, procedures.get_messages),
            "get_commands": partial(self._ask, procedures.get_commands),
            "set_model": self._set_model,
            "set_thinking": self._set_thinking,
            "ping": partial(self._ask, procedures.ping),
            "ui_respond": self._ui_respond,
        }
        if allow_bash:
            self._methods["bash"] = self._bash

    # --- the contract ---

    @property
    def is_running(self) -> bool:
        """From a prompt, or an unrequested ``agent_start``, until the run has settled."""
        return self._runs.is_running

    @property
    def is_streaming(self) -> bool:
        """From ``agent_start`` to ``agent_end`` and before a retry: at other times a prompt begins a run of its own."""
        return self._runs.phase is PiRunPhase.RUNNING or self._runs.is_backing_off

    def listen_raw(self, *, on: bool) -> None:
        """Return pi's own lines in ``Step.raw`` from now on, or no longer."""
        self._link.raw_listening = on

    def forward(self, request_id: str, command: RawObject, now: float) -> Step:
        """Send a front end's own command. UsageError carries ``worker_code`` unsupported or invalid_params."""
        return self._link.begin(self._passthrough.forward, request_id, command, now)

    def open(self, now: float) -> Step:
        """Ask for the state: pi has no ready line and answers once it has booted."""
        self._link.now = now
        self._link.send(PiGetState(), self._on_boot_answer)
        return self._link.collect_step()

    def request(self, request_id: str, method: str, params: msgspec.Raw, now: float) -> Step:
        """Send a native request. UsageError carries ``worker_code`` unsupported or invalid_params."""
        handler = self._methods.get(method)
        if handler is None:
            raise UsageError(f"a worker of the pi dialect does not do {method}", worker_code="unsupported")
        return self._link.begin(handler, request_id, params, now)

    def receive(self, block: bytes, now: float) -> Step:
        """Translate a block of complete lines."""
        self._link.now = now
        decoded = decode_block(block, self._decoder)
        if self._link.wants_raw:
            for raw, line in pair_lines(block, decoded, self._decoder):
                self._link.collect_raw(raw, line)
        for line in decoded.messages:
            if line.type == "response":
                self._link.deliver(line)
            else:
                self._event_handler.handle(line)
        self._runs.end_step()
        return self._link.collect_step(decoded)

    def forget(self, request_id: str) -> None:
        """Drop a late answer; the run or procedure behind the request goes on."""
        self._link.forget(request_id)

    def next_deadline(self) -> float | None:
        """The earliest deadline of runs and dialogs."""
        deadlines = (self._runs.next_deadline(), self._dialogs.next_deadline())
        return min((at for at in deadlines if at is not None), default=None)

    def expire(self, now: float) -> Step:
        """Act on the deadlines of runs and dialogs that have passed."""
        self._link.now = now
        self._dialogs.expire(now)
        self._runs.expire(now)
        return self._link.collect_step()

    # --- boot ---

    def _on_boot_answer(self, line: PiLine) -> None:
        problem = _boot_problem(line)
        if problem is None:
            self._link.emit("ready", Ready(agent="pi", methods=sorted(self._methods)))
        else:
            self._link.emit("start_failed", {"message": problem})

    # --- runs ---

    def _prompt(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, PromptParams)
        if params.client_tools or params.tool_results:
            raise UsageError("pi takes no tools from its client", worker_code="unsupported")
        prompt = PiPrompt(message=_text_with_options(params), images=params.images)
        if self._reject_if_exclusive(request_id):
            return
        if not self._runs.is_running:
            self._runs.start(request_id, prompt, params.run_id)
        elif params.streaming_behavior is None:
            self._link.reject(request_id, "busy", "a run is in progress; pass streaming_behavior")
        else:
            how = "steer" if params.streaming_behavior == "steer" else "followUp"
            self._runs.join(request_id, msgspec.structs.replace(prompt, streaming_behavior=how), is_prompt=True)

    def _steer(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, TextParams)
        self._join(request_id, PiPrompt(message=params.text, images=params.images, streaming_behavior="steer"))

    def _follow_up(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, TextParams)
        self._join(request_id, PiPrompt(message=params.text, images=params.images, streaming_behavior="followUp"))

    def _join(self, request_id: str, prompt: PiPrompt) -> None:
        if self._reject_if_exclusive(request_id):
            return
        if self._runs.is_running:
            self._runs.join(request_id, prompt, is_prompt=False)
        else:
            self._link.reject(request_id, "idle", "no run is in progress; send a prompt")

    def _abort(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, AbortParams)
        self._runs.begin_abort(keep_queue=params.keep_queue)
        self._dialogs.cancel_all()
        if self._procedure_runner.running_shells:
            self._link.send(PiAbortBash(), lambda _line: None)
        self._procedure_runner.run_for_request(request_id, self._abort_procedure())

    def _abort_procedure(self) -> procedures.Procedure[dict[str, int]]:
        yield from procedures.abort()
        return {"left_in_queue": self._runs.queued}

    def _drain(self, done: Callable[[], None]) -> None:
        def failed(_error: WorkerRefused) -> None:
            done()

        drain = procedures.drain(self._consent, self._runtime_settings, settles=self._runs.reports_settled)
        self._procedure_runner.run(drain, lambda _could: done(), failed)

    # --- sessions and settings ---

    def _new_session(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, PiNewSessionParams)
        if self._in_memory:
            self._begin_exclusive(request_id, "new_session", procedures.in_memory_session())
            return
        self._begin_exclusive(
            request_id,
            "new_session",
            procedures.new_session(self._consent, self._runtime_settings, params.parent_session),
        )

    def _switch_session(self, request_id: str, raw: msgspec.Raw) -> None:
        path = decode_params(raw, PiSwitchSessionParams).session_file
        self._begin_exclusive(
            request_id, "switch_session", procedures.switch_session(self._consent, self._runtime_settings, path)
        )

    def _compact(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, CompactParams)
        self._begin_exclusive(request_id, "compact", procedures.compact(params.instructions))

    def _begin_exclusive(self, request_id: str, method: str, procedure: procedures.Procedure[object]) -> None:
        if self._reject_if_exclusive(request_id):
            return
        if self._runs.is_running:
            self._dialogs.cancel_all()
        self._procedure_runner.run_for_request(request_id, procedure, exclusive=method)

    def _reject_if_exclusive(self, request_id: str) -> bool:
        method = self._procedure_runner.exclusive_method
        if method is not None:
            self._link.reject(request_id, "busy", f"{method} is under way")
        return method is not None

    def _set_model(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, PiSetModelParams)
        self._procedure_runner.run_for_request(
            request_id, procedures.set_model(self._runtime_settings, params.provider, params.model)
        )

    def _set_thinking(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, PiSetThinkingParams)
        self._procedure_runner.run_for_request(
            request_id, procedures.set_thinking(self._runtime_settings, params.level)
        )

    # --- questions ---

    def _ask(self, begin: Callable[[], procedures.Procedure[Any]], request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, PiNoParams)
        self._procedure_runner.run_for_request(request_id, begin())

    def _bash(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, PiBashParams)
        self._procedure_runner.run_for_request(request_id, procedures.bash(params.command))

    def _ui_respond(self, request_id: str, raw: msgspec.Raw) -> None:
        if self._dialogs.answer(decode_params(raw, UiAnswer)):
            self._link.answer(request_id, {})
        else:
            self._link.reject(request_id, "unknown_dialog", "no such dialog is open; the first answer wins")


def _text_with_options(params: PromptParams) -> str:
    """The text with what its answer is to be: behind it, since pi looks for commands at its beginning."""
    words = "" if params.answer is None else answer_instructions(params.answer, passed_on=False)
    return "\n\n".join(filter(None, (params.text, words)))


def _boot_problem(line: PiLine) -> str | None:
    if not line.success:
        return f"pi refused the first question: {error_text(line)}"
    try:
        state = procedures.decode_answer(line.data, PiState)
    except WorkerRefused as error:
        return error.message
    return None if state.model is not None and state.model.is_known else _NO_MODEL
