"""A supervisor under load that is killed at chosen moments, and what its next lives make of what it had accepted."""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import trio

from tests.acceptance.account_book import Book, Envelope, Message, plan
from tests.acceptance.account_checks import check_answers, check_store, check_transcripts
from tests.acceptance.line_client import LineClient, Lost, Refused, connected
from tests.acceptance.lives import Lives

SETTINGS = """
[pool]
max = 2
[router]
dm_scope = "per-channel-peer"
[gateway.queue]
debounce = "10ms"
"""
_MESSAGES, _LAST_MESSAGES, _SENDERS = 30, 40, 10
_LIFE_SECONDS = 60.0
_SETTLE_SECONDS = 40.0


class Moment(NamedTuple):
    """When a supervisor dies: ``at`` seconds after it has accepted the first message, or with the ``at``-th sign."""

    sign: str
    at: float


def moments_of(seed: int) -> list[Moment]:
    """Two random moments, and three right after something has happened; two seeds cover all of that."""
    rng = random.Random(seed)
    signs = ("accepted", "run:accepted", "run:start", "text_chunk", "done")
    moments = [Moment("seconds", rng.uniform(0, 0.15)) for _ in range(2)]
    moments += [Moment(signs[(3 * seed + number) % len(signs)], rng.randint(1, 8)) for number in range(3)]
    rng.shuffle(moments)
    return moments


class _Victim:
    """The lives on one data directory, one for each moment."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.lives = Lives(folder, SETTINGS)
        self.book = Book([], self._look)
        self._rng = rng
        self._news = trio.Event()
        self._moment: Moment | None = None
        self._signs = Counter[str]()

    def _look(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def live_until(self, moment: Moment) -> None:
        """Settle what the last life has left, take new messages, die."""
        supervisor = await trio.to_thread.run_sync(self.lives.living)
        async with connected(supervisor.socket, self._hear, seconds=_LIFE_SECONDS) as client:
            await self._settle(client)
            self._signs.clear()
            self._moment = moment
            async with trio.open_nursery() as nursery:
                self._load(nursery, client, _MESSAGES)
                if moment.sign == "seconds":
                    await self._until(lambda: self._signs["accepted"] > 0)
                    await trio.sleep(moment.at)  # the moment itself, not a wait for anything
                    supervisor.signal(signal.SIGKILL)
            await client.ended.wait()
            self._moment = None
            await trio.to_thread.run_sync(self.lives.kill)

    async def live_on(self) -> None:
        """The last life: everything is settled, new messages are served, and all that can be asked agrees."""
        supervisor = await trio.to_thread.run_sync(self.lives.living)
        async with connected(supervisor.socket, self._hear, seconds=_LIFE_SECONDS) as client:
            await self._settle(client)
            async with trio.open_nursery() as nursery:
                self._load(nursery, client, _LAST_MESSAGES)
            await self._wait_for_ends()
            self.book.problems += await check_answers(self.book, client)
            sessions = await client.call("sessions.list")
            self.book.problems += check_transcripts(self.book, self.lives.data_dir, sessions)

    async def _settle(self, client: LineClient) -> None:
        """Ask for what nobody has heard the end of, and wait for those ends."""
        await client.call("subscribe", since=self.book.bookmark)
        for message in list(self.book.open):
            try:
                await client.call("agent.wait", run_id=message.key, timeout_ms=0)
            except Refused:
                self.book.forget(message)
        await self._wait_for_ends()

    async def _wait_for_ends(self) -> None:
        with trio.move_on_after(_SETTLE_SECONDS):
            await self._until(self.book.is_complete)
        assert self.book.is_complete(), self.book.audit()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._news.wait()

    def _load(self, nursery: trio.Nursery, client: LineClient, count: int) -> None:
        """Have so many new messages sent, those of each sender one after the other."""
        messages = plan(count, _SENDERS, self._rng, first=len(self.book.messages))
        self.book.expect(messages)
        for sender in range(_SENDERS):
            nursery.start_soon(self._send, client, messages[sender::_SENDERS])

    async def _send(self, client: LineClient, messages: Iterable[Message]) -> None:
        for message in messages:
            try:
                self.book.accept(message, await client.call("agent", **message.params()))
            except Lost:
                return
            self._notice("accepted")

    def _hear(self, event: Envelope) -> None:
        self.book.hear(event)
        self._notice(event["type"])

    def _notice(self, sign: str) -> None:
        """Kill at once: whatever the supervisor would do next must not happen."""
        self._signs[sign] += 1
        if self._moment == Moment(sign, self._signs[sign]):
            os.kill(self.lives.all[-1].process.pid, signal.SIGKILL)


async def survive(folder: Path, moments: Iterable[Moment], seed: int) -> Book:
    """Die at each of the moments; the books have everything that was wrong among their problems."""
    victim = _Victim(folder, random.Random(seed))
    try:
        for moment in moments:
            await victim.live_until(moment)
        await victim.live_on()
    finally:
        victim.lives.stop()
    victim.book.problems += check_store(victim.book, victim.lives.data_dir)
    return victim.book
