"""What one process tells another to believe: a block of memory that both share through a file.

A fault writes, the supervisor that was started by ``stress.tampered_supervisor`` reads, each time it looks at the
clock or starts a process.
"""

import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path

__all__ = ["Tampering"]

_SIZE = 16
_OFFSET = struct.Struct("d")
_IS_FULL_AT = _OFFSET.size


class Tampering:
    """``clock_offset``: seconds that the wall clock is ahead of the real one. ``no_processes``: no fork succeeds."""

    @classmethod
    def of(cls, data_dir: Path) -> "Tampering":
        """That of the supervisor on this data directory, whoever of the two comes first."""
        path = Path(f"{data_dir}.tampering")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, _SIZE)
            return cls(mmap.mmap(descriptor, _SIZE))
        finally:
            os.close(descriptor)

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @property
    def clock_offset(self) -> float:
        """In seconds."""
        return float(_OFFSET.unpack_from(self._memory)[0])

    @clock_offset.setter
    def clock_offset(self, seconds: float) -> None:
        _OFFSET.pack_into(self._memory, 0, seconds)

    @property
    def no_processes(self) -> bool:
        """Whether starting a process fails with EAGAIN."""
        return bool(self._memory[_IS_FULL_AT])

    @no_processes.setter
    def no_processes(self, full: bool) -> None:
        self._memory[_IS_FULL_AT] = full
