"""How a worker's dialect looks from a front end: what requests mean, what answers of our own are like. Pure."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

import msgspec

from errors import PoolError, UsageError
from rpc.raw import RawObject, read_object
from wire.messages import Ready

__all__ = ["Kind", "Manners", "RunSeen", "raw_object", "why_garbage", "without_id"]

_encode = msgspec.json.Encoder().encode


class Kind(Enum):
    """What a request means for the session."""

    PROMPT = auto()
    ABORT = auto()
    PLAIN = auto()
    """It changes nothing that anybody else must know of."""
    SETTER = auto()
    """It changes how the worker works from now on."""
    MOVING = auto()
    """It may put another conversation in the place of this one."""
    RESUMING = auto()
    """So does this, and that one lies in a file it names."""
    LEAVING = auto()
    """The program is to end: the attachment does."""
    UNKNOWN = auto()


class RunSeen(NamedTuple):
    """What the lines of a program have said of its runs.

    ``settles``: the program says when it will not go on by itself, which is later than the end of a run.
    """

    is_open: bool = False
    settles: bool = False


class Manners(Protocol):
    """One dialect's. ``name`` is what the dialect calls a request."""

    def name_of(self, command: RawObject) -> str | None:
        """What is asked for."""
        ...

    def kind_of(self, command: RawObject) -> Kind:
        """What that means."""
        ...

    def file_of(self, command: RawObject) -> str | None:
        """The transcript that a request of kind RESUMING names."""
        ...

    def text_of(self, command: RawObject) -> str:
        """What a prompt says."""
        ...

    def garbage(self, text: str) -> bytes | None:
        """The answer to a line that is no JSON object; None where the program says nothing."""
        ...

    def refusal(self, command: RawObject, error: PoolError) -> bytes:
        """The answer to a request that failed."""
        ...

    def farewell(self, command: RawObject) -> bytes | None:
        """The answer to a request of kind LEAVING."""
        ...

    def greeting(self, ready: Ready | None) -> Sequence[bytes]:
        """What the program says first."""
        ...

    def lost(self, error: PoolError) -> Sequence[bytes]:
        """What ends a run whose worker is gone, for those who watched it begin."""
        ...

    def run_after(self, seen: RunSeen, line: bytes) -> RunSeen:
        """Whether a run is on after this line of the program."""
        ...

    def settings_of(self, command: RawObject, result: msgspec.Raw) -> dict[str, RawObject]:
        """The requests that bring another worker to where a setter has brought this one, each under its topic."""
        ...


def why_garbage(text: str) -> str:
    """What is wrong with a line that is no request."""
    try:
        read_object(text.encode())
    except UsageError as exc:
        return exc.message
    return "the line holds characters that are no text"


def without_id(command: RawObject) -> RawObject:
    """The request without what its answer was to be known by."""
    return {name: value for name, value in command.items() if name != "id"}


def raw_object(**members: Any) -> RawObject:
    """A request of our own making."""
    return {name: msgspec.Raw(_encode(value)) for name, value in members.items()}
