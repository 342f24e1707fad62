"""What /proc, and so ``ps`` and ``top``, show of this process: its arguments, its environment, its name. Linux only.

It works without privileges, by ``prctl``; where the kernel lacks that, it raises OSError and nothing has changed.
"""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TITLE_VARIABLE = "POOL_WORKER_TITLE"
"""Tells the bundled agent what to be called: its id and the name of its definition. No session's key: every user of
the machine can read it."""
_PR_SET_NAME, _PR_SET_MM, _PR_SET_MM_MAP = 15, 35, 14
_NO_FILE = 2**32 - 1


class _MemoryMap(ctypes.Structure):
    """``struct prctl_mm_map``."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data", "start_brk", "brk")),
        *((name, ctypes.c_uint64) for name in ("start_stack", "arg_start", "arg_end", "env_start", "env_end", "auxv")),
        *((name, ctypes.c_uint32) for name in ("auxv_size", "exe_fd")),
    )


_STAT_FIELDS = {
    "start_code": 26,
    "end_code": 27,
    "start_stack": 28,
    "start_data": 45,
    "end_data": 46,
    "start_brk": 47,
    "env_start": 50,
    "env_end": 51,
}
"""Where /proc/self/stat has them, the first field being 1."""


class ProcessText:
    """Shows texts for this process as long as the object lives."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._prctl: Any = libc.prctl
        self._sbrk: Any = libc.sbrk
        self._sbrk.restype = ctypes.c_void_p
        self._shown: ctypes.Array[ctypes.c_char] | None = None

    def show(self, argv: Iterable[str], env: Iterable[tuple[str, str]] | None = None) -> None:
        """Have /proc show these arguments and this environment (None: as it is) as if exec had passed them. OSError."""
        arguments = b"".join(os.fsencode(part) + b"\0" for part in argv)
        variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env or ())
        shown = ctypes.create_string_buffer(arguments + variables)
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        places = {name: int(fields[place - 3]) for name, place in _STAT_FIELDS.items()}
        start = ctypes.addressof(shown)
        middle = start + len(arguments)
        if env is not None:
            places |= {"env_start": middle, "env_end": middle + len(variables)}
        layout = _MemoryMap(**places, arg_start=start, arg_end=middle, auxv=0, auxv_size=0, exe_fd=_NO_FILE)
        while layout.brk != (brk := self._sbrk(0)):  # the end of the heap must be named too, and is not to be moved
            layout.brk = brk
            if self._prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(layout), ctypes.sizeof(layout), 0) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        self._shown = shown

    def show_title(self, title: str) -> None:
        """``pool: worker TITLE`` as the only argument, and a name that begins alike. Raises OSError."""
        self.show([f"pool: worker {title}"])
        self._prctl(_PR_SET_NAME, f"pool {title}".encode()[:15], 0, 0, 0)
