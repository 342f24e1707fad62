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
from typing import Self

from wire.process_title import ProcessText

_CLONE_CALLS = {"x86_64": 56, "aarch64": 220}
"""Numbers of the system call ``clone``. (``clone3`` is the same everywhere, and refused in many containers.)"""
_CLONE_PARENT, _CHILD_CLEARTID, _CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_PR_GET_TID_ADDRESS = 40


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
        self._syscall = libc.syscall
        self._text = ProcessText(libc)
        flags = _CLONE_PARENT | _CHILD_SETTID | _CHILD_CLEARTID | signal.SIGCHLD
        # the fourth argument on one machine is the fifth on the other, and what is not asked for is not read
        self._arguments = [ctypes.c_long(value) for value in (number, flags, 0, 0, tid_address, tid_address)]
        self._before = ctypes.pythonapi.PyOS_BeforeFork
        self._after_in_parent = ctypes.pythonapi.PyOS_AfterFork_Parent
        self._after_in_child = ctypes.pythonapi.PyOS_AfterFork_Child
        for hook in (self._before, self._after_in_parent, self._after_in_child):
            hook.restype = None

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
        self._text.show(argv, env)


def _check(result: int) -> None:
    if result != 0:
        _raise(ctypes.get_errno())


def _raise(code: int) -> int:
    raise OSError(code, os.strerror(code))
