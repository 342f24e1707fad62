"""Duplicate messages of channels (a reconnect, a webhook's retry), and the order of arrival in a session."""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import trio

from gateway.settings import CurrentSettings, DedupeSettings
from router.source import MessageSource

RunT = TypeVar("RunT")


class Dedupe(Generic[RunT]):
    """Remembers the latest messages, each with the run it started. ``now`` is monotonic, in seconds.

    A message is what its channel, account, chat and sender call by one message id; without an id, its whole text. The
    window begins with the first of them: a text that is repeated for an hour starts one run a minute.
    """

    def __init__(self, settings: CurrentSettings) -> None:
        self._settings = settings
        self._seen: OrderedDict[bytes, tuple[float, RunT]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def check(self, source: MessageSource, text: str, run: RunT, now: float) -> RunT | None:
        """The run that this message has started already; None = it is new, and ``run`` is remembered for it."""
        limits = self._settings.value.dedupe
        self._expire(now, limits)
        if limits.window <= 0 or limits.entries <= 0:
            return None
        name = _message_digest(source, text)
        known = self._seen.get(name)
        if known is not None:
            return known[1]
        self._seen[name] = (now, run)
        if len(self._seen) > limits.entries:
            self._seen.popitem(last=False)
        return None

    def discard(self, source: MessageSource, text: str) -> None:
        """The message's run was refused after all: when it comes again it is new."""
        self._seen.pop(_message_digest(source, text), None)

    def _expire(self, now: float, limits: DedupeSettings) -> None:
        while self._seen:
            since, _run = next(iter(self._seen.values()))
            if now - since < limits.window and len(self._seen) <= limits.entries:
                return
            self._seen.popitem(last=False)


def _message_digest(source: MessageSource, text: str) -> bytes:
    """A digest of whose message it is and which; length-prefixed, so that no two lists of parts read the same."""
    which = ("text", text) if source.message_id is None else ("id", source.message_id)
    digest = hashlib.sha256()
    for part in (source.channel, source.account_id, source.chat_id, source.sender_id, *which):
        encoded = b"" if part is None else part.encode("utf-8", "surrogatepass")
        digest.update(b"-:" if part is None else b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.digest()


class SessionOrder:
    """A FIFO lock for each session with a message in progress."""

    def __init__(self) -> None:
        self._locks: dict[str, trio.StrictFIFOLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def lock(self, session: str) -> AsyncGenerator[None, None]:
        """Hold the session's lock during the block."""
        lock = self._locks.setdefault(session, trio.StrictFIFOLock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # else the next one in line has it
                self._locks.pop(session, None)
