"""The parts of a session key: how any identifier is written in one, read back, and what it may hold."""

import re
from urllib.parse import quote, unquote

from errors import UsageError

__all__ = [
    "MAX_KEY_LENGTH",
    "check_agent",
    "check_identifier",
    "check_length",
    "check_raw",
    "decode_part",
    "encode_part",
    "shown",
]

MAX_KEY_LENGTH = 512
"""Characters of any key, as written."""

_AGENT_ID = re.compile(r"[a-z0-9_-]{1,64}")
_UNSHOWABLE = r"\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""Control characters, line breaks, and what is invisible or turns the text around it.

A list of our own: what Unicode calls printable grows with each Python, and no key may change with it.
"""
_RESERVED = re.compile(f"[%:/{_UNSHOWABLE}]")
_RAW_UNSHOWABLE = re.compile(f"[{_UNSHOWABLE}]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LONGEST_SHOWN = 80


def encode_part(identifier: str) -> str:
    """An identifier as it stands between two colons: what is reserved or cannot be shown becomes ``%XX`` of UTF-8."""
    if identifier in (".", ".."):
        return identifier.replace(".", "%2E")
    return _RESERVED.sub(lambda found: quote(found[0], safe=""), identifier)


def decode_part(part: str) -> str:
    """The identifier that a part means; escapes that are not needed are understood too. Raises UsageError."""
    if _BAD_ESCAPE.search(part):
        raise UsageError(f"{shown(part)} in a session key has a % that no escape follows; a plain % is written %25")
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as exc:
        raise UsageError(f"the escapes of {shown(part)} in a session key are no UTF-8") from exc


def check_agent(agent: str) -> None:
    """Raise UsageError for what is no agent id."""
    if not _AGENT_ID.fullmatch(agent):
        raise UsageError(f"{shown(agent)} is no agent in a session key: 1 to 64 of a-z, 0-9, _ and -")


def check_identifier(name: str, value: str) -> None:
    """Raise UsageError for an empty identifier, and for one with half a character (a lone surrogate) in it."""
    if not value:
        raise UsageError(f"a session key needs its {name}, and the one given is empty")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"the {name} {shown(value)} of a session key is no Unicode text") from exc


def check_length(text: str) -> None:
    """Raise UsageError for a key longer than any may be."""
    if len(text) > MAX_KEY_LENGTH:
        raise UsageError(f"a session key has 1 to {MAX_KEY_LENGTH} characters, this one has {len(text)}")


def check_raw(text: str) -> None:
    """Raise UsageError for the text of a structured key in which something stands that only an escape may stand for."""
    if _RAW_UNSHOWABLE.search(text):
        raise UsageError(f"the session key {shown(text)} holds characters that cannot be shown; write them as %XX")


def shown(text: str) -> str:
    """The text as an error may show it, whatever it holds."""
    return ascii(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")
