"""Checks clients' schemas, and answers against them, each in a process of its own with a time limit."""

import hashlib
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec
import trio

from errors import UsageError

__all__ = ["Schemas"]

_PROGRAM = str(Path(__file__).with_name("schema_check.py"))
_SECONDS = 20.0
"""Wall time; the program's own limit is 2 s of CPU time, which a loaded machine may not grant it."""
_AT_ONCE = 2
_REMEMBERED = 256


class Schemas:
    """One for the server's life. Caches the digests of valid schemas."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(_AT_ONCE)
        self._right: OrderedDict[bytes, None] = OrderedDict()

    async def check(self, schema: dict[str, Any], param: str) -> None:
        """Raises UsageError for an invalid schema, or one that cannot be checked within the limits."""
        encoded = msgspec.json.encode(schema)
        digest = hashlib.sha256(encoded).digest()
        if digest in self._right:
            self._right.move_to_end(digest)
            return
        try:
            problem = await self._ask(b'{"schema":%b}' % encoded)
        except UsageError as exc:
            problem = exc.message
        if problem is not None:
            raise UsageError(f"{param}: this JSON schema cannot be used: {problem}", param=param)
        self._right[digest] = None
        if len(self._right) > _REMEMBERED:
            self._right.popitem(last=False)

    async def misfit(self, schema: dict[str, Any], value: bytes) -> str | None:
        """Why a JSON value does not fit, or None. Raises UsageError where checking it exceeds the limits."""
        return await self._ask(b'{"schema":%b,"value":%b}' % (msgspec.json.encode(schema), value))

    async def _ask(self, question: bytes) -> str | None:
        async with self._limiter:
            with trio.move_on_after(_SECONDS):
                ended = await trio.run_process(
                    [sys.executable, "-I", _PROGRAM],
                    stdin=question,
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                    env={},
                )
                if ended.returncode == 0:
                    problem: str | None = msgspec.json.decode(ended.stdout, type=str | None)
                    return problem
        raise UsageError("checking against this JSON schema takes too much time or memory")
