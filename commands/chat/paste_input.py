"""The terminal's input, which hands over a pasted text in one piece.

prompt_toolkit looks for the end of a paste from its beginning again with each kilobyte: 5 MB took half a minute.
"""

import select
import sys

from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.vt100 import Vt100Input

_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_PIECE_BYTES = 64 * 1024
_PAUSE_SECONDS = 0.2
"""A paste that stops for longer is handed over as far as it has come, so that the screen is never stuck."""


class _PasteReader(PosixStdinReader):
    def read(self, count: int = 1024) -> str:
        data = super().read(count)
        if _BEGIN not in data or _END in data:
            return data
        pieces, tail = [data], data
        while _END not in tail and not self.closed and select.select([self.stdin_fd], [], [], _PAUSE_SECONDS)[0]:
            piece = super().read(_PIECE_BYTES)
            tail = tail[-len(_END) :] + piece
            pieces.append(piece)
        return "".join(pieces)


def open_paste_input() -> Vt100Input:
    """The input of this process's terminal."""
    terminal = Vt100Input(sys.stdin)
    terminal.stdin_reader = _PasteReader(sys.stdin.fileno(), encoding=sys.stdin.encoding)
    return terminal
