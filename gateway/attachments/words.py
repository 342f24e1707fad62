"""What a worker writes to its stderr, on its way to a front end: whole lines, bounded. Pure."""

__all__ = ["MOST_WORDS", "Words"]

MOST_WORDS = 64 * 1024
"""Most characters that wait for a front end; further lines are left out, and counted."""
_LONGEST = 8 * 1024


class Words:
    """The lines that wait. Of a longer line the first 8,192 characters are kept."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._left_out = 0

    def __bool__(self) -> bool:
        return bool(self._lines or self._left_out)

    def add(self, words: str) -> None:
        """Take whole lines."""
        for line in words.splitlines():
            kept = line[:_LONGEST]
            if self._size + len(kept) >= MOST_WORDS:
                self._left_out += 1
                continue
            self._lines.append(kept)
            self._size += len(kept) + 1

    def take(self) -> str:
        """All of them, and how many were left out."""
        lines = self._lines
        if self._left_out:
            lines.append(f"[{self._left_out} lines of the agent's stderr were left out]")
        self._lines, self._size, self._left_out = [], 0, 0
        return "".join(f"{line}\n" for line in lines)
