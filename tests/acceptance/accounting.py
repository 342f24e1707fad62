"""A front end that can account for each of its messages, whatever happens to the supervisor meanwhile.

It sends messages of many senders over the real socket, while the supervisor is killed and started again; connects
again with its bookmark, sends again what it was never told was accepted, and in the end compares what it was told with
the transcripts and with the store. ``python -m tests.acceptance.accounting --help``.
"""

import argparse
import math
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import trio

from tests.acceptance.account_book import EVERY_MODE, Book, Message, Modes, plan
from tests.acceptance.account_checks import check_answers, check_store, check_transcripts
from tests.acceptance.line_client import LineClient, Lost, Refused, connected
from tests.acceptance.lives import Lives

SETTINGS = """
[pool]
max = 3
[router]
dm_scope = "per-channel-peer"
[gateway]
outcomes = 100000
[gateway.queue]
debounce = "20ms"
cap = 5
pending = 250
channels = { slack = "collect" }
"""
_UNANSWERED = 8
"""Messages that a sender has on the way; more than a session's queue takes."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The result: how many messages came to which end, and what is wrong, as sentences."""

    fates: Counter[str]
    problems: list[str]
    lives: int
    resumed: int
    interrupted: int
    sent_again: int
    events: int
    pieces: int
    seconds: float


class FrontEnd:
    """Everything on this side of the socket. One connection at a time; senders wait while there is none."""

    def __init__(self, lives: Lives, messages: list[Message], breaks: list[tuple[int, bool]]) -> None:
        """``breaks``: after how many steps the connection ends, and whether the supervisor is killed then."""
        self.book = Book(messages, self._look)
        self._lives = lives
        self._breaks = breaks
        self._client: LineClient | None = None
        self._news = trio.Event()

    def _look(self) -> None:
        """Something has changed: whoever waits looks again."""
        self._news.set()
        self._news = trio.Event()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._news.wait()

    def _has_another_than(self, lost: LineClient | None) -> bool:
        return self._client is not lost

    async def follow(self) -> None:
        """One connection after the other, until everything is told."""
        for steps, is_killed in self._breaks:
            async with self._connected() as client:
                await self._until(partial(self.book.has_come_to, steps))
                if is_killed:
                    await trio.to_thread.run_sync(self._lives.kill)
        async with self._connected() as client:
            await self._until(self.book.is_complete)
            self.book.problems += await check_answers(self.book, client)
            sessions = await client.call("sessions.list")
            self.book.problems += check_transcripts(self.book, self._lives.data_dir, sessions)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[LineClient, None]:
        """A connection to whoever lives, following the events from where the last one ended."""
        supervisor = await trio.to_thread.run_sync(self._lives.living)
        async with connected(supervisor.socket, self.book.hear) as client:
            subscribed = await client.call("subscribe", since=self.book.bookmark)
            if not subscribed["complete"]:
                self.book.problems.append(f"nothing is known any more of bookmark {self.book.bookmark}")
            self._client = client
            self._look()
            yield client

    async def send(self, messages: Iterable[Message]) -> None:
        """One sender's messages in their order, each until it is known what the supervisor says to it."""
        sent: deque[Message] = deque()
        for message in messages:
            if len(sent) == _UNANSWERED:
                await self._until(sent.popleft().is_over)
            sent.append(message)
            lost: LineClient | None = None
            while True:
                await self._until(partial(self._has_another_than, lost))
                lost = self._client
                if await self._say(message):
                    break

    async def _say(self, message: Message) -> bool:
        """Whether there was an answer."""
        assert self._client is not None
        message.sent += 1
        try:
            self.book.accept(message, await self._client.call("agent", **message.params()))
        except Lost:
            return False
        except Refused as exc:
            self.book.refuse(message, exc.code)
        return True


async def account_for(
    folder: Path,
    *,
    messages: int,
    senders: int,
    kills: int,
    seed: int,
    modes: Modes = EVERY_MODE,
    limit: float = math.inf,
) -> Account:
    """Send so many messages of so many senders while the supervisor is killed so often; ``folder`` is empty.

    As often, the front end hangs up of its own accord. After ``limit`` seconds it waits no longer.
    """
    rng = random.Random(seed)
    sent = plan(messages, senders, rng, modes=modes)
    points = rng.sample(range(1, 2 * messages * 9 // 10), 2 * kills)
    lives = Lives(folder, SETTINGS)
    front_end = FrontEnd(lives, sent, sorted((point, number < kills) for number, point in enumerate(points)))
    began = time.monotonic()
    try:
        with trio.move_on_after(limit):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(front_end.follow)
                for sender in range(senders):
                    nursery.start_soon(front_end.send, sent[sender::senders])
    finally:
        lives.stop()
    book = front_end.book
    return Account(
        fates=book.fates(),
        problems=book.audit() + check_store(book, lives.data_dir),
        lives=len(lives.all),
        resumed=sum(line["resumed"] for line in lives.logged("recovered")),
        interrupted=sum(line["interrupted"] for line in lives.logged("recovered")),
        sent_again=sum(message.sent - 1 for message in sent),
        events=book.events,
        pieces=book.pieces,
        seconds=time.monotonic() - began,
    )


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.accounting", description=__doc__)
    for name, default in (("messages", 1000), ("sources", 50), ("kills", 5), ("seed", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    wishes = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="accounting-"))

    async def account() -> Account:
        return await account_for(
            folder, messages=wishes.messages, senders=wishes.sources, kills=wishes.kills, seed=wishes.seed
        )

    result = trio.run(account)
    sys.stdout.write("\n".join(_lines(result, wishes.messages)) + "\n")
    if result.problems:
        sys.stdout.write(f"everything is left in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def _lines(account: Account, messages: int) -> list[str]:
    return [
        *(f"{count:8,}  {fate}" for fate, count in sorted(account.fates.items())),
        f"{account.fates.total():8,}  of {messages:,} messages, over {account.lives} lives in {account.seconds:.1f} s",
        f"{account.events:8,}  events heard, {account.pieces:,} of them text",
        f"{account.resumed:8,}  runs begun by a later life, {account.interrupted:,} found interrupted",
        f"{account.sent_again:8,}  messages sent again",
        *(f"PROBLEM   {problem}" for problem in account.problems),
    ]


if __name__ == "__main__":
    sys.exit(_main())
