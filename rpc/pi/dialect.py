"""The pi dialect: real ``pi --mode rpc`` behind the native vocabulary. Sans-IO, see ``rpc.dialect.Dialect``."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from errors import UsageError, WorkerRefused
from rpc.dialect import Step
from rpc.passthrough import RawObject, paired
from rpc.pi import procedures
from rpc.pi.consent import Consent
from rpc.pi.dialogs import Desk, UiAnswer
from rpc.pi.event_handler import Narrator
from rpc.pi.events import error_text
from rpc.pi.link import Link
from rpc.pi.messages import (
    AbortBash,
    AbortParams,
    BashParams,
    CompactParams,
    GetState,
    NewSessionParams,
    NoParams,
    PiLine,
    PiState,
    Prompt,
    SetModelParams,
    SetThinkingParams,
    SwitchSessionParams,
    decode_params,
)
from rpc.pi.passthrough import Forwards
from rpc.pi.procedure_runner import Conversations
from rpc.pi.procedures import Soft
from rpc.pi.run_state import Phase
from rpc.pi.runs import Runs
from rpc.settings import RpcSettings
from wire.framing import decode_block
from wire.messages import PromptParams, Ready, TextParams
from wire.texts import words_of

P = TypeVar("P", bound=msgspec.Struct)

_NO_MODEL = (
    "pi has no usable model: configure a provider and its key in the agent dir (models.json, auth.json, settings.json) "
    "or in the environment, or name one with --provider and --model"
)


class PiDialect:
    """Implements ``rpc.dialect.Dialect`` for pi 0.73 and later.

    Beside the contract:

    - ``attended``: asked whether somebody is there to answer dialogs of extensions. While nobody is, each dialog is
      cancelled at once. Those that would keep ``new_session`` and ``switch_session`` from happening are confirmed.
    - ``in_memory``: it runs with ``--no-session``. It has the conversation that it begins with, and no other one.
    - The event ``start_failed{message}`` instead of ``ready``: pi lives, but cannot work.
    - ``bash{command}`` (only with ``allow_bash``) and ``ui_respond{id, value|confirmed|cancelled}`` are further
      methods.
    - A prompt that joins a run (``streaming_behavior``) is answered with the end of that run. ``steer`` and
      ``follow_up`` are answered when pi has the text, and refused with ``idle`` when no run is on: pi would keep the
      text in silence for whoever prompts next.
    - ``abort`` answers ``{left_in_queue}`` when the run has ended. What waits in pi's queue is dropped: by a command,
      or where a release has none by opening the transcript again. Without a transcript the texts of such a release
      stay, and ``left_in_queue`` is their number.
    - ``new_session``, ``switch_session`` and ``compact`` in a run abort it first; after ``abort_grace`` its end is told
      without pi.
    - A process is ended by closing its stdin, once nothing more is expected of it: pi drops what it has not written.
    """

    name = "pi"

    def __init__(
        self,
        settings: RpcSettings,
        *,
        allow_bash: bool,
        attended: Callable[[], bool] = lambda: False,
        in_memory: bool = False,
    ) -> None:
        self._decoder = msgspec.json.Decoder(PiLine)
        self._soft = Soft()
        self._consent = Consent()
        self._in_memory = in_memory
        self._link = Link()
        self._conversations = Conversations(self._link, settings.abort_grace)
        self._runs = Runs(self._link, self._drain)
        self._conversations.bind(self._runs)
        self._desk = Desk(self._link, self._runs, self._consent, settings.ui_timeout, attended)
        self._narrator = Narrator(self._link, self._runs, self._desk)
        self._forwards = Forwards(self._link, self._runs, self._desk, allow_bash=allow_bash)
        self._methods: dict[str, Callable[[str, msgspec.Raw], None]] = {
            "prompt": self._prompt,
            "steer": self._steer,
            "follow_up": self._follow_up,
            "abort": self._abort,
            "new_session": self._new_session,
            "switch_session": self._switch_session,
            "compact": self._compact,
            "get_state": self._get_state,
            "get_messages": self._get_messages,
            "get_commands": self._get_commands,
            "set_model": self._set_model,
            "set_thinking": self._set_thinking,
            "ping": self._ping,
            "ui_respond": self._ui_respond,
        }
        if allow_bash:
            self._methods["bash"] = self._bash

    # --- the contract ---

    @property
    def is_running(self) -> bool:
        """From a prompt, or an ``agent_start`` that nobody asked for, until the run has settled."""
        return self._runs.is_running

    @property
    def is_streaming(self) -> bool:
        """From ``agent_start`` to ``agent_end`` and before a retry: at other times a prompt begins a run of its own."""
        return self._runs.phase is Phase.RUNNING or self._runs.is_backing_off

    def listen_raw(self, *, on: bool) -> None:
        """See the contract."""
        self._link.is_heard = on

    def forward(self, request_id: str, command: RawObject, now: float) -> Step:
        """See the contract. UsageError carries ``worker_code`` unsupported or invalid_params."""
        self._link.now = now
        self._link.expect(request_id)
        try:
            self._forwards.forward(request_id, command)
        except UsageError:
            self._link.forget(request_id)
            raise
        return self._link.take_step()

    def open(self, now: float) -> Step:
        """Ask for the state: pi has no ready line and answers once it has booted."""
        self._link.now = now
        self._link.send(GetState(), self._booted)
        return self._link.take_step()

    def request(self, request_id: str, method: str, params: msgspec.Raw, now: float) -> Step:
        """See the contract. UsageError carries ``worker_code`` unsupported or invalid_params."""
        handler = self._methods.get(method)
        if handler is None:
            raise UsageError(f"a worker of the pi dialect does not do {method}", worker_code="unsupported")
        self._link.now = now
        self._link.expect(request_id)
        try:
            handler(request_id, params)
        except UsageError:
            self._link.forget(request_id)
            raise
        return self._link.take_step()

    def receive(self, block: bytes, now: float) -> Step:
        """See the contract."""
        self._link.now = now
        decoded = decode_block(block, self._decoder)
        if self._link.is_listened_to:
            for raw, line in paired(block, decoded, self._decoder):
                self._link.hear(raw, line)
        for line in decoded.messages:
            if line.type == "response":
                self._link.deliver(line)
            else:
                self._narrator.tell(line)
        self._runs.end_step()
        return self._link.take_step(decoded)

    def forget(self, request_id: str) -> None:
        """See the contract. The run or procedure behind the request goes on."""
        self._link.forget(request_id)

    def next_deadline(self) -> float | None:
        """See the contract."""
        deadlines = (self._runs.next_deadline(), self._desk.next_deadline())
        return min((at for at in deadlines if at is not None), default=None)

    def expire(self, now: float) -> Step:
        """See the contract."""
        self._link.now = now
        self._desk.expire(now)
        self._runs.expire(now)
        return self._link.take_step()

    # --- boot ---

    def _booted(self, line: PiLine) -> None:
        problem = _boot_problem(line)
        if problem is None:
            self._link.event("ready", Ready(agent="pi", methods=sorted(self._methods)))
        else:
            self._link.event("start_failed", {"message": problem})

    # --- runs ---

    def _prompt(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, PromptParams)
        if params.client_tools or params.tool_results:
            raise UsageError("pi takes no tools from its client", worker_code="unsupported")
        prompt = Prompt(message=_with_options(params), images=params.images)
        if self._is_exclusively_busy(request_id):
            return
        if not self._runs.is_running:
            self._runs.start(request_id, prompt, params.run_id)
        elif params.streaming_behavior is None:
            self._link.refuse(request_id, "busy", "a run is in progress; pass streaming_behavior")
        else:
            how = "steer" if params.streaming_behavior == "steer" else "followUp"
            self._runs.join(request_id, msgspec.structs.replace(prompt, streaming_behavior=how), is_prompt=True)

    def _steer(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, TextParams)
        self._join(request_id, Prompt(message=params.text, images=params.images, streaming_behavior="steer"))

    def _follow_up(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, TextParams)
        self._join(request_id, Prompt(message=params.text, images=params.images, streaming_behavior="followUp"))

    def _join(self, request_id: str, prompt: Prompt) -> None:
        if self._is_exclusively_busy(request_id):
            return
        if self._runs.is_running:
            self._runs.join(request_id, prompt, is_prompt=False)
        else:
            self._link.refuse(request_id, "idle", "no run is in progress; send a prompt")

    def _abort(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, AbortParams)
        self._runs.begin_abort(keep_queue=params.keep_queue)
        self._desk.cancel_all()
        if self._conversations.shells:
            self._link.send(AbortBash(), lambda _line: None)
        self._conversations.begin(request_id, self._aborting())

    def _aborting(self) -> procedures.Procedure[dict[str, int]]:
        yield from procedures.abort()
        return {"left_in_queue": self._runs.queued}

    def _drain(self, done: Callable[[], None]) -> None:
        def failed(_error: WorkerRefused) -> None:
            done()

        drain = procedures.drain(self._consent, self._soft, settles=self._runs.settles)
        self._conversations.run(drain, lambda _could: done(), failed)

    # --- sessions and settings ---

    def _new_session(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, NewSessionParams)
        if self._in_memory:
            self._exclusively(request_id, "new_session", procedures.only_session())
            return
        self._exclusively(
            request_id, "new_session", procedures.new_session(self._consent, self._soft, params.parent_session)
        )

    def _switch_session(self, request_id: str, raw: msgspec.Raw) -> None:
        path = decode_params(raw, SwitchSessionParams).session_file
        self._exclusively(request_id, "switch_session", procedures.switch_session(self._consent, self._soft, path))

    def _compact(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, CompactParams)
        self._exclusively(request_id, "compact", procedures.compact(params.instructions))

    def _exclusively(self, request_id: str, method: str, procedure: procedures.Procedure[object]) -> None:
        if self._is_exclusively_busy(request_id):
            return
        if self._runs.is_running:
            self._desk.cancel_all()
        self._conversations.begin(request_id, procedure, exclusive=method)

    def _is_exclusively_busy(self, request_id: str) -> bool:
        method = self._conversations.exclusive
        if method is not None:
            self._link.refuse(request_id, "busy", f"{method} is under way")
        return method is not None

    def _set_model(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, SetModelParams)
        self._conversations.begin(request_id, procedures.set_model(self._soft, params.provider, params.model))

    def _set_thinking(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, SetThinkingParams)
        self._conversations.begin(request_id, procedures.set_thinking(self._soft, params.level))

    # --- questions ---

    def _get_state(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, NoParams)
        self._conversations.begin(request_id, procedures.get_state(self._runs.held))

    def _get_messages(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, NoParams)
        self._conversations.begin(request_id, procedures.get_messages())

    def _get_commands(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, NoParams)
        self._conversations.begin(request_id, procedures.get_commands())

    def _ping(self, request_id: str, raw: msgspec.Raw) -> None:
        decode_params(raw, NoParams)
        self._conversations.begin(request_id, procedures.ping())

    def _bash(self, request_id: str, raw: msgspec.Raw) -> None:
        params = decode_params(raw, BashParams)
        self._conversations.begin(request_id, procedures.bash(params.command))

    def _ui_respond(self, request_id: str, raw: msgspec.Raw) -> None:
        if self._desk.answer(decode_params(raw, UiAnswer)):
            self._link.answer(request_id, {})
        else:
            self._link.refuse(request_id, "unknown_dialog", "no such dialog is open; the first answer wins")


def _with_options(params: PromptParams) -> str:
    """The text with what its answer is to be: behind it, since pi looks for commands at its beginning."""
    words = "" if params.answer is None else words_of(params.answer, passed_on=False)
    return "\n\n".join(filter(None, (params.text, words)))


def _boot_problem(line: PiLine) -> str | None:
    if not line.success:
        return f"pi refused the first question: {error_text(line)}"
    try:
        state = procedures.decode(line.data, PiState)
    except WorkerRefused as error:
        return error.message
    return None if state.model is not None and state.model.is_known else _NO_MODEL
