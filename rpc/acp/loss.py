"""Whether an agent's refusal says that it no longer has a conversation, which it had a moment ago. Pure."""

import re
from enum import Enum, auto

from rpc.acp.messages import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND

_READ_CHARS = 2_000
_UNKNOWN = re.compile(
    r"\b(?:unknown|no such|invalid) (?:session|thread|conversation)"
    r"|\b(?:session|thread|conversation)\b.{0,100}\b(?:not found|does not exist)"
)
_ENDED = re.compile(
    r"\b(?:process|session|thread|conversation)\b.{0,40}\b(?:ended|exited|closed|terminated|died|gone)\b"
)


class Loss(Enum):
    """How far a prompt may have come that an agent has refused so."""

    UNKNOWN = auto()
    """It has no conversation of that id: the prompt is in none."""
    ENDED = auto()
    """What served the conversation has ended, before the prompt or in its turn."""


def loss_of(code: int | None, text: str) -> Loss | None:
    """What a refusal with this code and these words says of the conversation; None: nothing.

    Agents agree on neither. Where it is mistaken for a loss, the conversation is closed and loaded once more.
    """
    if code == RESOURCE_NOT_FOUND:
        return Loss.UNKNOWN
    if code not in (INVALID_PARAMS, INTERNAL_ERROR):
        return None
    words = text[:_READ_CHARS].lower()
    if _UNKNOWN.search(words):
        return Loss.UNKNOWN
    return Loss.ENDED if _ENDED.search(words) else None
