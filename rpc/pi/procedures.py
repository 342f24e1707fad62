"""Requests that take more than one exchange with pi, written as generators: yield a command, get its good answer.

A bad answer is thrown in as WorkerRefused. ``UNTIL_IDLE`` ends the run that is on, if any, and waits for its end.
"""

import posixpath
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, TypeVar

import msgspec

from errors import WorkerRefused
from rpc.pi.messages import (
    ModelRef,
    PiAbort,
    PiBash,
    PiClearQueue,
    PiCommand,
    PiCompact,
    PiGetCommands,
    PiGetMessages,
    PiGetState,
    PiLine,
    PiNewSession,
    PiSetModel,
    PiSetThinkingLevel,
    PiState,
    PiSwitchSession,
    PiUiResponse,
    SessionChangeResult,
    ThinkingLevel,
)
from wire.framing import DECODE_ERRORS
from wire.messages import SessionResult, StateResult, UiRequest

R = TypeVar("R")


class Until(Enum):
    """What a procedure can wait for besides an answer."""

    IDLE = auto()


UNTIL_IDLE = Until.IDLE
Procedure = Generator[PiCommand | Until, PiLine, R]


class RuntimeSettings:
    """Settings made at run time: pi forgets them for what its command line says whenever the session changes."""

    def __init__(self) -> None:
        self.model: tuple[str, str] | None = None
        self.thinking: ThinkingLevel | None = None


MAX_QUESTIONS = 8
"""Questions that are agreed to for one change of the session."""
_MAX_QUESTION_CHARS = 200
"""Characters of a question that count."""


class Consent:
    """A yes to extensions that ask before the pool gives pi another session; nothing else is ever agreed to.

    The line of a question does not say what it is about. But pi that is not to change its session says so before it
    does anything else. So each question is cancelled at first, and where pi then stays, the command is sent again with
    a yes to exactly those questions; what is asked besides, once the new session begins, is cancelled as ever.

    One instance per dialect. ``refused`` are the questions of the last attempt that a yes could be given to,
    ``last_question`` is what was asked last and cancelled.
    """

    def __init__(self) -> None:
        self.refused: frozenset[str] = frozenset()
        self.last_question: str | None = None
        self._granted: frozenset[str] | None = None

    @contextmanager
    def granting(self, questions: frozenset[str]) -> Iterator[None]:
        """Until the end of the block agree to these questions and cancel all others."""
        self._granted, self.refused, self.last_question = questions, frozenset(), None
        try:
            yield
        finally:
            self._granted = None

    def answer(self, request: UiRequest) -> PiUiResponse | None:
        """The answer to an extension; None where the session is not being changed: a person may answer."""
        if self._granted is None:
            return None
        title, message = (str(request.fields.get(name, ""))[:_MAX_QUESTION_CHARS] for name in ("title", "message"))
        question = f"{title}\n{message}"
        if request.method == "confirm":
            if question in self._granted:
                return PiUiResponse(id=request.id, confirmed=True)
            if len(self.refused) < MAX_QUESTIONS:
                self.refused |= {question}
        self.last_question = title
        return PiUiResponse(id=request.id, cancelled=True)


class _BashResult(msgspec.Struct, frozen=True, rename="camel"):
    output: str = ""
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False


def fetch_state() -> Procedure[PiState]:
    """Where pi is."""
    line = yield PiGetState()
    return decode_answer(line.data, PiState)


def ping() -> Procedure[dict[str, Any]]:
    """Whether it answers at all."""
    yield PiGetState()
    return {}


def get_state(pending: int) -> Procedure[StateResult]:
    """The state in native words; ``pending`` more messages wait on our side."""
    state = yield from fetch_state()
    model = state.model if state.model and state.model.is_known else None
    return StateResult(
        session_id=state.session_id,
        session_file=state.session_file,
        message_count=state.message_count,
        is_streaming=state.is_streaming,
        is_compacting=state.is_compacting,
        provider=model.provider if model else None,
        model=model.id if model else None,
        thinking=state.thinking_level,
        pending=state.pending_message_count + pending,
    )


def get_messages() -> Procedure[msgspec.Raw]:
    """``{messages}``, each in pi's shape, passed on undecoded."""
    return (yield PiGetMessages()).data


def get_commands() -> Procedure[msgspec.Raw]:
    """``{commands}``, passed on undecoded."""
    return (yield PiGetCommands()).data


def abort() -> Procedure[None]:
    """End the run that is on; pi answers also when there is none."""
    yield PiAbort()
    yield UNTIL_IDLE


def bash(command: str) -> Procedure[dict[str, Any]]:
    """Run a shell command; ``{output, exit_code, cancelled, truncated}``."""
    line = yield PiBash(command=command)
    return msgspec.structs.asdict(decode_answer(line.data, _BashResult))


def compact(instructions: str | None) -> Procedure[msgspec.Raw]:
    """Shorten the conversation; pi's ``{summary, tokensBefore, ...}``. In a run pi would kill it without a word."""
    yield UNTIL_IDLE
    return (yield PiCompact(custom_instructions=instructions)).data


def set_model(runtime: RuntimeSettings, provider: str, model: str) -> Procedure[dict[str, Any]]:
    """Use another model, in this and all later sessions; ``{provider, model, thinking}`` as they are then."""
    yield PiSetModel(provider=provider, model_id=model)
    runtime.model = (provider, model)
    if runtime.thinking is not None:  # a new model comes with its own level
        yield PiSetThinkingLevel(level=runtime.thinking)
    state = yield from fetch_state()
    return {"provider": provider, "model": model, "thinking": state.thinking_level}


def set_thinking(runtime: RuntimeSettings, level: ThinkingLevel) -> Procedure[dict[str, Any]]:
    """Think this hard from now on; ``{level}`` is what the model can do of it."""
    yield PiSetThinkingLevel(level=level)
    runtime.thinking = level
    state = yield from fetch_state()
    return {"level": state.thinking_level}


def new_session(consent: Consent, runtime: RuntimeSettings, parent: str | None) -> Procedure[SessionResult]:
    """Begin a conversation. Its file does not exist before the first assistant message."""
    yield UNTIL_IDLE
    yield from _change_session(consent, PiNewSession(parent_session=parent))
    state = yield from _restore_settings(runtime)
    return SessionResult(state.session_id, state.session_file)


def in_memory_session() -> Procedure[SessionResult]:
    """The first conversation of a pi with ``--no-session``, which would keep a second one in its working directory.

    Raises WorkerRefused ``used`` where something was said in it.
    """
    yield UNTIL_IDLE
    state = yield from fetch_state()
    if state.message_count:
        raise WorkerRefused("pi with --no-session would keep a second conversation on the disk", worker_code="used")
    return SessionResult(state.session_id, state.session_file)


def switch_session(consent: Consent, runtime: RuntimeSettings, session_file: str) -> Procedure[SessionResult]:
    """Go on with a conversation. Raises WorkerRefused ``resume_failed`` when pi then holds another or an empty one.

    pi says ``success`` for any path and starts afresh where it finds no transcript; but it never writes a transcript
    without a message, so an empty one was not resumed. The caller has checked and repaired the file.
    """
    yield UNTIL_IDLE
    yield from _change_session(consent, PiSwitchSession(session_path=session_file))
    state = yield from _restore_settings(runtime)
    if state.session_file is None or posixpath.normpath(state.session_file) != posixpath.normpath(session_file):
        raise WorkerRefused(f"pi holds {state.session_file}, not {session_file}", worker_code="resume_failed")
    if not state.message_count:
        raise WorkerRefused(
            f"pi found no conversation in {session_file}; the file is missing or no transcript",
            worker_code="resume_failed",
        )
    return SessionResult(state.session_id, state.session_file)


def drain(consent: Consent, runtime: RuntimeSettings, *, settles: bool) -> Procedure[bool]:
    """Drop what waits in pi's queue: by its command, or where it has none by opening the same transcript again.

    ``settles``: pi says when it will not go on by itself. Such releases refuse a command that they do not know with its
    id; older ones are not asked.

    False when there is no transcript to open (``--no-session``). Raises WorkerRefused ``cancelled`` when an extension
    said no. In both cases the queue is as it was.
    """
    if settles and (yield from _clear_queue()):
        return True
    state = yield from fetch_state()
    if state.session_file is None or not state.message_count:
        return False
    yield from _change_session(consent, PiSwitchSession(session_path=state.session_file))
    yield from _restore_settings(runtime)
    return True


def _clear_queue() -> Procedure[bool]:
    try:
        yield PiClearQueue()
    except WorkerRefused:
        return False
    return True


def _change_session(consent: Consent, command: PiNewSession | PiSwitchSession) -> Procedure[None]:
    """Raises WorkerRefused ``cancelled`` where an extension says no, though it got a yes to what it asked."""
    granted: frozenset[str] = frozenset()
    while True:
        with consent.granting(granted):
            line = yield command
        if not decode_answer(line.data, SessionChangeResult).cancelled:
            return
        if not consent.refused or len(granted) >= MAX_QUESTIONS:
            raise WorkerRefused(_cancelled_message(command, consent.last_question), worker_code="cancelled")
        granted |= consent.refused


def _cancelled_message(command: PiNewSession | PiSwitchSession, asked: str | None) -> str:
    why = f"an extension of pi has cancelled {command.type}" + ("" if asked is None else f"; it asked: {asked}")
    mend = "; to keep the conversation, remove the extension and restart the supervisor"
    return why + (mend if isinstance(command, PiSwitchSession) else "")


def _restore_settings(runtime: RuntimeSettings) -> Procedure[PiState]:
    """Make the settings of the new session those of the old one; the state after that."""
    state = yield from fetch_state()
    mended = False
    if runtime.model is not None and state.model != ModelRef(runtime.model[1], runtime.model[0]):
        yield PiSetModel(provider=runtime.model[0], model_id=runtime.model[1])
        mended = True
    if runtime.thinking is not None and (mended or state.thinking_level != runtime.thinking):
        yield PiSetThinkingLevel(level=runtime.thinking)
    return (yield from fetch_state()) if mended else state


_SESSION_CHANGING = frozenset({"new_session", "switch_session", "fork", "clone", "compact"})
"""In a run pi ends it without a word."""


def changed_session(command: str, line: PiLine) -> bool:
    """Whether the good answer to a command of this name means another or a shorter conversation."""
    if command not in _SESSION_CHANGING:
        return False
    try:
        return not decode_answer(line.data, SessionChangeResult).cancelled
    except WorkerRefused:
        return True


def decode_answer(data: msgspec.Raw, kind: type[R]) -> R:
    """The data of a good answer. Raises WorkerRefused when it has another shape than pi's."""
    try:
        return msgspec.json.decode(data, type=kind)
    except DECODE_ERRORS as exc:
        raise WorkerRefused(f"pi's answer is not understood: {exc}", worker_code="bad_answer") from exc
