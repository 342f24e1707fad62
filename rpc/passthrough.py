"""Lines that a front end and the worker's own program exchange: they pass unchanged, but for the ids of answers."""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from errors import UsageError
from wire.framing import DECODE_ERRORS, DecodedBlock, decode_block

T = TypeVar("T")

RawObject = dict[str, msgspec.Raw]
"""A JSON object whose members are left as they were written."""

_object_decoder: msgspec.json.Decoder[RawObject] = msgspec.json.Decoder(RawObject)
_text_decoder: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode


class RawLine(NamedTuple):
    """A line of the worker's own program, without its LF.

    ``request``: the id of the forwarded request that it belongs to; the line has that one's own id again. None for an
    event that belongs to none. ``others``: None for an answer; for an event of a request the line without an id, as
    front ends read it that have not made the request, whose own ids may be the same.
    """

    line: bytes
    request: str | None
    line_without_id: bytes | None = None


class RawRequest(NamedTuple):
    """A line of a front end on its way: ``on_sent`` is called with the id that its answer will be known by."""

    command: RawObject
    on_sent: Callable[[str], None]


def read_object(line: bytes | msgspec.Raw) -> RawObject:
    """The members of a JSON object. Raises UsageError for anything else: a worker's program may die of ``null``."""
    try:
        return _object_decoder.decode(line)
    except DECODE_ERRORS as exc:
        found = _read_leniently(bytes(line))
        if found is None:
            raise UsageError(f"the line is no JSON object: {exc}") from exc
        return found


def may_have_lone_surrogates(line: bytes) -> bool:
    """Whether half a surrogate pair may be in it: JavaScript writes those, and other JSON readers refuse them."""
    return rb"\ud" in line or rb"\uD" in line


def _read_leniently(line: bytes) -> RawObject | None:
    """The same where a text was cut inside an emoji; what follows it in the next line makes it whole again."""
    if not may_have_lone_surrogates(line):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {_replace_lone_surrogates(name): msgspec.Raw(json.dumps(value).encode()) for name, value in found.items()}


def _replace_lone_surrogates(name: str) -> str:
    return name.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def text_member(command: RawObject, name: str) -> str | None:
    """A member that is a text; None where it is missing or something else."""
    try:
        return _text_decoder.decode(command[name])
    except (KeyError, *DECODE_ERRORS):
        return None


def with_id(command: RawObject, identity: str) -> bytes:
    """The command as a whole line, under another id."""
    return _encode({**command, "id": identity}) + b"\n"


def with_original_id(line: bytes, own: msgspec.Raw | None) -> bytes:
    """An answer under the id that its request came with; without any where it came with none."""
    answer = read_object(line)
    if own is None:
        answer.pop("id", None)
    else:
        answer["id"] = own
    return _encode(answer)


def pair_lines(block: bytes, decoded: DecodedBlock[T], decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[bytes, T]]:
    """Each message of a block with the line it came from; lines that were no message are left out."""
    lines = [line for line in block.split(b"\n") if line and not line.isspace()]
    if len(lines) == len(decoded.messages):
        yield from zip(lines, decoded.messages, strict=True)
        return
    for line in lines:
        for message in decode_block(line + b"\n", decoder).messages:
            yield line, message
