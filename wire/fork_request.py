"""What a fork server is asked for, as its two sides write it down. Standard library only.

A message to the server is one byte with descriptors: a file that holds the request, the working directory, the new
process's stdin, stdout and stderr, and a pipe. The new process writes its pid there once it has become what was asked
for; the end of the pipe without one says that there is no such process.
"""

import os
import struct
from collections.abc import Iterable
from typing import NamedTuple, Self

DESCRIPTORS = 6
READY = b"ready"
"""The server's first message where it can serve; any other one says why it cannot."""
MAX_MESSAGE = 1024
"""Bytes of that."""
ANSWER = struct.Struct("=i")
"""The pid."""

_HEAD = struct.Struct("=qI")


class ForkRequest(NamedTuple):
    """``argv`` as exec would take it, the whole environment, ``limit_mark`` the soft RLIMIT_RTTIME (0: as it is)."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    limit_mark: int = 0

    def encode(self) -> bytes:
        """One block of bytes. Raises ValueError for a NUL, which no argument can hold."""
        texts = [*self.argv, *(f"{name}={value}" for name, value in self.env)]
        if any("\0" in text for text in texts):
            raise ValueError("embedded null byte")
        return _HEAD.pack(self.limit_mark, len(self.argv)) + b"\0".join(map(os.fsencode, texts))

    @classmethod
    def decode(cls, block: bytes) -> Self:
        """What ``encode`` wrote."""
        limit_mark, arguments = _HEAD.unpack_from(block)
        texts = [os.fsdecode(text) for text in block[_HEAD.size :].split(b"\0")]
        return cls(tuple(texts[:arguments]), tuple(_pairs(texts[arguments:])), limit_mark)


def _pairs(variables: Iterable[str]) -> Iterable[tuple[str, str]]:
    for variable in variables:
        name, _, value = variable.partition("=")
        yield name, value
