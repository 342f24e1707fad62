"""Reading the pieces out of many text events at once, without making strings of them."""

from collections.abc import Sequence

import msgspec

from wire.framing import DECODE_ERRORS

__all__ = ["read_pieces"]


class _Piece(msgspec.Struct, frozen=True, gc=False):
    """What of ``assistant_message`` and ``thinking`` is published."""

    partial: msgspec.Raw = msgspec.Raw(b'""')


_pieces = msgspec.json.Decoder(list[_Piece])
_strings = msgspec.json.Decoder(list[str])


def read_pieces(raws: Sequence[msgspec.Raw]) -> tuple[list[msgspec.Raw], str]:
    """The pieces in order, each a valid JSON string; and why one was left out, "" when none was."""
    try:
        return _read(raws), ""
    except DECODE_ERRORS:  # one of them is odd, and only that one is left out
        return _read_each(raws)


def _read(raws: Sequence[msgspec.Raw]) -> list[msgspec.Raw]:
    pieces = [piece.partial for piece in _pieces.decode(_as_list(raws))]
    _strings.decode(_as_list(pieces))
    return pieces


def _read_each(raws: Sequence[msgspec.Raw]) -> tuple[list[msgspec.Raw], str]:
    pieces: list[msgspec.Raw] = []
    odd = ""
    for raw in raws:
        try:
            pieces += _read([raw])
        except DECODE_ERRORS as exc:
            odd = odd or str(exc)
    return pieces, odd


def _as_list(raws: Sequence[msgspec.Raw]) -> bytes:
    return b"[%b]" % b",".join(raws)
