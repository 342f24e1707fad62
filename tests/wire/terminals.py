"""A terminal, or a file, as it is written to; and a small screen that shows what is left of it."""

import io
import re

_SEQUENCE = re.compile(r"\x1b\[(\d*)([A-Za-z])|([^\x1b])", re.DOTALL)


class Terminal(io.StringIO):
    """Text that counts its flushes and may say that it is a terminal."""

    def __init__(self, *, tty: bool = False) -> None:
        super().__init__()
        self.tty = tty
        self.flushes = 0

    def isatty(self) -> bool:
        return self.tty

    def flush(self) -> None:
        self.flushes += 1


def screen_of(written: str) -> list[str]:
    """The lines that a terminal shows: knows line ends, cursor up, erasing below, and styles, which it leaves out."""
    lines, row = [""], 0
    for number, letter, ch in _SEQUENCE.findall(written):
        if ch == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif ch:
            lines[row] += ch
        elif letter == "A":
            row -= int(number)
        elif letter == "J":
            del lines[row:]
            lines.append("")
        else:
            assert letter == "m", f"an unknown sequence: {letter}"
    return [line for line in lines if line]
