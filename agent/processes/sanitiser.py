r"""Bytes of a command's output -> text that is safe to show: UTF-8 across reads, no ANSI, other controls as ``\xNN``.

Tab, line feed and carriage return stay. What is no UTF-8 becomes U+FFFD. An escape sequence is taken out only when it
is complete, of bounded length and within one line; anything else that begins with ESC is shown as ``\x1b``. So after a
line feed nothing is left of what was before: that makes it possible to skip over a flood without reading it.
"""

import re
from codecs import getincrementaldecoder

__all__ = ["Sanitiser"]

_STRING_CHARS = 4096
"""The longest string (a title, a link) that an escape sequence may hold."""

_ESCAPE = "\x1b"
_CSI = r"\[[0-?]{0,256}[ -/]{0,16}"
_OSC = rf"\][^\x07\x1b\n]{{0,{_STRING_CHARS}}}"
_STRING = rf"[PX^_][^\x1b\n]{{0,{_STRING_CHARS}}}"
_SEQUENCE = rf"\x1b(?:{_CSI}[@-~]|{_OSC}(?:\x07|\x1b\\)|{_STRING}\x1b\\|[ -/]{{1,16}}[0-~]|[0-OQ-WYZ\\`-~])"
_REMOVED = re.compile(rf"{_SEQUENCE}|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BEGUN = re.compile(rf"\x1b(?:{_CSI}|(?:{_OSC}|{_STRING})\x1b?|[ -/]{{0,16}})?\Z")
_LONGEST = _STRING_CHARS + 300
"""No sequence is longer than this."""

_PLAIN = bytes([0x09, 0x0A, 0x0D, *range(0x20, 0x7F)])


class Sanitiser:
    """One stream's state between two reads."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._begun = ""
        self._is_clean = True

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """The text of the next bytes; the beginning of a character or a sequence is held back for the next call."""
        if self._is_clean and not data.translate(None, _PLAIN):
            return data.decode("ascii")  # by far the most: one look at all bytes, and nothing to do
        text = self._begun + self._decoder.decode(data, final)
        held = None if final else _BEGUN.search(text, max(0, len(text) - _LONGEST))
        self._begun = "" if held is None else held.group()
        self._is_clean = not self._begun and not self._decoder.getstate()[0]
        return _REMOVED.sub(_shown, text if held is None else text[: held.start()])

    def skip(self, data: bytes) -> None:
        """Go on to the state after ``data`` without making its text: all before its last line feed costs nothing."""
        cut = data.rfind(b"\n") + 1
        if cut:
            self._decoder.reset()
            self._begun, self._is_clean = "", True
        self.feed(data[cut:])


def _shown(match: re.Match[str]) -> str:
    found = match.group()
    return "" if found[0] == _ESCAPE and len(found) > 1 else f"\\x{ord(found):02x}"
