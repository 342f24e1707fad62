"""Parameters of requests, checked before anything is written: pi takes nonsense in silence."""

from typing import Annotated, TypeVar

import msgspec

from errors import UsageError
from rpc.pi.commands import ThinkingLevel
from wire.framing import DECODE_ERRORS
from wire.messages import EMPTY

__all__ = [
    "AbortParams",
    "BashParams",
    "CompactParams",
    "NewSessionParams",
    "NoParams",
    "SetModelParams",
    "SetThinkingParams",
    "SwitchSessionParams",
    "decode_params",
]

P = TypeVar("P")
_Name = Annotated[str, msgspec.Meta(min_length=1)]
_AbsolutePath = Annotated[str, msgspec.Meta(pattern="^/[^\x00]+$")]


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For methods without parameters."""


class AbortParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``abort``: ``keep_queue`` leaves queued texts for the next prompt."""

    keep_queue: bool = False


class NewSessionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``new_session``: ``parent_session`` is the transcript that the new one refers to."""

    parent_session: _AbsolutePath | None = None


class SwitchSessionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``switch_session``: the transcript's absolute path; the worker's own directory may be another."""

    session_file: _AbsolutePath


class CompactParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``compact``: what the summary should keep."""

    instructions: str | None = None


class SetModelParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_model``."""

    provider: _Name
    model: _Name


class SetThinkingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_thinking``: off, minimal, low, medium, high or xhigh."""

    level: ThinkingLevel


class BashParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``bash``."""

    command: _Name


def decode_params(raw: msgspec.Raw, kind: type[P]) -> P:
    """The parameters as their struct; none at all count as ``{}``. Raises UsageError with what is wrong where."""
    try:
        return msgspec.json.decode(b"{}" if bytes(raw) in (b"", bytes(EMPTY)) else raw, type=kind)
    except DECODE_ERRORS as exc:
        raise UsageError(f"the parameters are not understood: {exc}", worker_code="invalid_params") from exc
