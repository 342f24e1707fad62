"""Two things of Linux that Python has no call for: to fork a child of our own parent, and to say what /proc shows.

Both work without privileges. Where the kernel, the machine or the C library lacks what they need, ``Cloner.open``
raises OSError before anything was done.
"""

import ctypes
import errno
import os
import platform
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Self

_CLONE_CALLS = {"x86_64": 56, "aarch64": 220}
"""Numbers of the system call ``clone``. (``clone3`` is the same everywhere, and refused in many containers.)"""
_CLONE_PARENT, _CHILD_CLEARTID, _CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_PR_GET_TID_ADDRESS, _PR_SET_MM, _PR_SET_MM_MAP = 40, 35, 14
_NO_FILE = 2**32 - 1


class _MemoryMap(ctypes.Structure):
    """``struct prctl_mm_map``."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data", "start_brk", "brk")),
        *((name, ctypes.c_uint64) for name in ("start_stack", "arg_start", "arg_end", "env_start", "env_end", "auxv")),
        *((name, ctypes.c_uint32) for name in ("auxv_size", "exe_fd")),
    )


_STAT_FIELDS = {"start_code": 26, "end_code": 27, "start_stack": 28, "start_data": 45, "end_data": 46, "start_brk": 47}
"""Where /proc/self/stat has them, the first field being 1."""


class Cloner:
    """The calls, found and tried. For a process with one thread.

    ``fork`` differs from ``os.fork`` in the new process's parent alone. The C library keeps the number of the thread in
    its memory, and ``fork`` of the library corrects it in the child; here the kernel does, at ``tid_address``.
    """

    @classmethod
    def open(cls) -> Self:
        """Find what is needed here. Raises OSError where it is missing."""
        number = _CLONE_CALLS.get(platform.machine())
        if number is None:
            raise OSError(errno.ENOSYS, f"fork servers do not know the machine {platform.machine()}")
        # PyDLL: the calls hold the interpreter's lock, as os.fork does from its first hook to its last
        libc = ctypes.PyDLL(None, use_errno=True)
        address = ctypes.c_ulong()
        _check(libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0))
        if ctypes.c_int.from_address(address.value).value != os.getpid():
            raise OSError(errno.ENOSYS, "this C library keeps the number of the thread at another place")
        return cls(libc, number, address.value)

    def __init__(self, libc: ctypes.PyDLL, number: int, tid_address: int) -> None:
        self._prctl, self._syscall = libc.prctl, libc.syscall
        self._sbrk = libc.sbrk
        self._sbrk.restype = ctypes.c_void_p
        flags = _CLONE_PARENT | _CHILD_SETTID | _CHILD_CLEARTID | signal.SIGCHLD
        # the fourth argument on one machine is the fifth on the other, and what is not asked for is not read
        self._arguments = [ctypes.c_long(value) for value in (number, flags, 0, 0, tid_address, tid_address)]
        self._before = ctypes.pythonapi.PyOS_BeforeFork
        self._after_in_parent = ctypes.pythonapi.PyOS_AfterFork_Parent
        self._after_in_child = ctypes.pythonapi.PyOS_AfterFork_Child
        for hook in (self._before, self._after_in_parent, self._after_in_child):
            hook.restype = None
        self._shown: ctypes.Array[ctypes.c_char] | None = None

    def fork(self) -> int:
        """Fork a process that our parent is the parent of; its pid, and 0 in it. Raises OSError."""
        self._before()
        pid = self._syscall(*self._arguments)
        if pid == 0:
            self._after_in_child()
            return 0
        code = ctypes.get_errno()
        self._after_in_parent()
        return pid if pid > 0 else _raise(code)

    def show_as(self, argv: Iterable[str], env: Iterable[tuple[str, str]]) -> None:
        """Have /proc show these as this process's arguments and environment, as if exec had passed them. OSError."""
        arguments = b"".join(os.fsencode(part) + b"\0" for part in argv)
        variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env)
        shown = ctypes.create_string_buffer(arguments + variables)  # alive as long as this object
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        places = {name: int(fields[place - 3]) for name, place in _STAT_FIELDS.items()}
        start = ctypes.addressof(shown)
        middle, end = start + len(arguments), start + len(arguments) + len(variables)
        layout = _MemoryMap(
            **places,
            arg_start=start,
            arg_end=middle,
            env_start=middle,
            env_end=end,
            auxv=0,
            auxv_size=0,
            exe_fd=_NO_FILE,
        )
        while layout.brk != (brk := self._sbrk(0)):  # the end of the heap must be named too, and is not to be moved
            layout.brk = brk
            _check(self._prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(layout), ctypes.sizeof(layout), 0))
        self._shown = shown


def _check(result: int) -> None:
    if result != 0:
        _raise(ctypes.get_errno())


def _raise(code: int) -> int:
    raise OSError(code, os.strerror(code))
