"""Dialects: sans-IO translators between native messages and what one worker program speaks, made by name.

One instance per worker process. It takes native requests (``prompt``, ``abort``, ``new_session`` ...) and raw blocks of
complete lines from the worker, and returns what to write and what happened. It reads no clock, awaits nothing and
touches no file, so that a recorded conversation replays in microseconds.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from errors import UsageError
from rpc.passthrough import RawLine, RawObject
from rpc.settings import RpcSettings
from wire.entries import ProcessMark, SessionHeader, TranscriptMessage
from wire.messages import ContextSize, Message

if TYPE_CHECKING:
    from rpc.acp.options import AcpOptions


class JournalWrite(NamedTuple):
    """Entries for the transcript of a worker whose program keeps none that we could read.

    ``header``: the file's first line, to which that layer adds when it was created; in a file that has one it is
    appended, and its members hold from there on.
    ``message``: one message, which gets its seq and time from the layer that writes the file.
    ``process``: the agent is about to take the conversation up, or has closed it.
    ``withdraws``: the last entry is removed, where it is a message of the user.
    """

    path: str
    header: SessionHeader | None = None
    message: TranscriptMessage | None = None
    process: ProcessMark | None = None
    withdraws: bool = False


class ConversationFacts(NamedTuple):
    """What an agent says of the conversation that it has open.

    ``options``: ids of what can be set in it.
    """

    options: tuple[str, ...] = ()
    model: str | None = None
    mode: str | None = None
    context: ContextSize | None = None


class Step(NamedTuple):
    """What one input led to.

    ``messages``: events and answers for the layer above, in order, answers under the caller's own request ids.
    ``outgoing``: whole lines (ending in LF) to write to the worker, in order.
    ``invalid_lines``: lines that were no message of the dialect, whole.
    ``trailing_run``, ``leading_run`` and ``longest_run``: how many such lines in a row stood at the end of the block,
    at its start and anywhere in it. The client adds up runs that cross blocks, so that the limit on runs does not
    depend on how the stream was cut.
    ``raw``: the worker's own lines for their listeners, and the answers to forwarded requests.
    ``journal``: what to append to transcripts, in order, before ``outgoing`` is written.
    """

    messages: list[Message]
    outgoing: list[bytes]
    invalid_lines: list[bytes]
    trailing_run: int = 0
    leading_run: int = 0
    longest_run: int = 0
    raw: tuple[RawLine, ...] = ()
    journal: tuple[JournalWrite, ...] = ()


EMPTY_STEP = Step([], [], [])


class Dialect(Protocol):
    """One per worker process. ``now`` is a monotonic time in seconds, only ever compared with itself."""

    @property
    def name(self) -> str:
        """``native`` or ``pi``: what the agent definition calls it."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether the worker is inside a turn, as far as its output shows."""
        ...

    @property
    def is_streaming(self) -> bool:
        """Whether a prompt now would be one beside the run that is on, as the worker's own program sees it."""
        ...

    @property
    def retire_reason(self) -> str | None:
        """Why the worker should serve nothing more after what it does now; None where it may."""
        ...

    @property
    def has_lost_conversation(self) -> bool:
        """Whether the worker no longer has the conversation that it was given last, and could be given it again."""
        ...

    @property
    def conversation_facts(self) -> ConversationFacts | None:
        """What the agent last said of its conversation; None in dialects whose programs are asked for it."""
        ...

    def listen_raw(self, *, on: bool) -> None:
        """Hand out the worker's own lines in ``Step.raw`` from now on, or no longer."""
        ...

    def forward(self, request_id: str, command: RawObject, now: float) -> Step:
        """A request in the words of the worker's own program, whose line it becomes under another id.

        Its answer comes twice: as the program gave it in ``Step.raw``, under the command's own id, and as exactly one
        answer with ``request_id`` in the messages (of a prompt: at the end of its run).

        Raises UsageError for what the dialect does not pass on; then nothing was sent.
        """
        ...

    def open(self, now: float) -> Step:
        """The first thing after the spawn; a dialect without a ready line begins to ask for the state here."""
        ...

    def request(self, request_id: str, method: str, params: msgspec.Raw, now: float) -> Step:
        """A request in native words; exactly one answer with ``request_id`` follows in some later step's messages.

        Raises UsageError for a method or parameters that the dialect refuses; then nothing was sent.
        """
        ...

    def receive(self, block: bytes, now: float) -> Step:
        """A block of complete lines from the worker's stdout."""
        ...

    def forget(self, request_id: str) -> None:
        """The caller no longer waits (deadline, cancelled): drop a late answer."""
        ...

    def next_deadline(self) -> float | None:
        """When ``expire`` wants to be called, if nothing else happens before."""
        ...

    def expire(self, now: float) -> Step:
        """A deadline of the dialect's own has passed (an unanswered dialog, a boot question to repeat)."""
        ...


def make_dialect(
    name: str,
    *,
    settings: RpcSettings,
    allow_bash: bool,
    attended: Callable[[], bool] = lambda: False,
    in_memory: bool = False,
    acp: "AcpOptions | None" = None,
) -> Dialect:
    """A fresh dialect for one worker process.

    ``allow_bash`` says whether the worker's profile has the tool ``bash``, ``in_memory`` whether it was started to
    keep no conversation; ``attended`` is asked whether a front end is there to answer dialogs. ``acp``: the
    ``AcpOptions`` of a worker of that dialect. Raises UsageError for an unknown name.
    """
    try:
        make: Callable[..., Dialect] = import_module(f"rpc.{name}").make
    except (ImportError, AttributeError) as exc:
        raise UsageError(f"there is no dialect {name!r}") from exc
    further = {} if acp is None else {"acp": acp}
    return make(settings, allow_bash=allow_bash, attended=attended, in_memory=in_memory, **further)
