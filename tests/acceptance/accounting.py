"""A front end that can account for each of its messages, whatever happens to the supervisor meanwhile.

It sends messages of many senders over the real socket, while the supervisor is killed and started again; connects
again with its bookmark, sends again what it was never told was accepted, and in the end compares what it was told with
the supervisor's answers, the transcripts and the store.
"""

import math
import os
import random
import signal
import sqlite3
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import trio

from tests.acceptance.account_book import EVERY_MODE, Book, Message, Modes, nonces_in
from tests.acceptance.line_client import Envelope, LineClient, Lost, Refused, connected
from tests.acceptance.supervisor import Lives

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
pending = 230
channels = { slack = "collect" }
"""
_UNANSWERED = 8
"""Messages that a sender has on the way; more than a session's queue takes."""
_SIGNS = ("accepted", "run:accepted", "run:start", "text_chunk", "done")


class Break(NamedTuple):
    """When a connection ends: with the ``at``-th sign on it. ``kills``: because the supervisor is killed, at once."""

    sign: str
    at: int
    kills: bool


def breaks_of(kills: int, rng: random.Random) -> list[Break]:
    """Number of kills after each kind of sign in turn, and of front ends that hang up by themselves."""
    offset = rng.randrange(len(_SIGNS))
    found = [Break(_SIGNS[(offset + n) % len(_SIGNS)], rng.randint(1, 12), kills=True) for n in range(kills)]
    found += [Break(rng.choice(_SIGNS), rng.randint(1, 12), kills=False) for _ in range(kills)]
    rng.shuffle(found)
    return found


class Account(NamedTuple):
    """The result: how many messages came to which end, and what is wrong, as sentences."""

    fates: Counter[str]
    problems: list[str]
    lives: int
    resumed: int
    sent_again: int


class FrontEnd:
    """Everything on this side of the socket. One connection at a time; senders wait while there is none."""

    def __init__(self, lives: Lives, messages: list[Message], breaks: list[Break]) -> None:
        self.book = Book(messages, self._look)
        self._lives = lives
        self._breaks = breaks
        self._break: Break | None = None
        self._signs: Counter[str] = Counter()
        self._client: LineClient | None = None
        self._hung_up = trio.Event()
        self._news = trio.Event()

    def _look(self) -> None:
        """Something has changed: whoever waits looks again."""
        self._news.set()
        self._news = trio.Event()
        if self.book.is_complete():
            self._end()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._news.wait()

    def _has_another_than(self, lost: LineClient | None) -> bool:
        return self._client is not lost

    async def follow(self) -> None:
        """One connection after the other, until everything is told."""
        for each in self._breaks:
            async with self._connected(each) as client:
                if self.book.is_complete():
                    self._end()
                await (client.ended if each.kills else self._hung_up).wait()
            if each.kills:
                await trio.to_thread.run_sync(self._lives.all[-1].kill)
        async with self._connected(None) as client:
            await self._until(self.book.is_complete)
            self.book.problems += await _check_answers(self.book, client)
            sessions = await client.call("sessions.list")
            self.book.problems += _check_transcripts(self.book, self._lives.data_dir, sessions)

    @asynccontextmanager
    async def _connected(self, end: Break | None) -> AsyncGenerator[LineClient, None]:
        """A connection to whoever lives, following the events from where the last one ended."""
        supervisor = await trio.to_thread.run_sync(self._lives.living)
        self._signs, self._hung_up, self._break = Counter(), trio.Event(), end
        async with connected(supervisor.socket, self._hear) as client:
            subscribed = await client.call("subscribe", since=self.book.bookmark)
            if not subscribed["complete"]:
                self.book.problems.append(f"nothing is known any more of bookmark {self.book.bookmark}")
            self._client = client
            self._look()
            yield client

    def _hear(self, event: Envelope) -> None:
        self.book.hear(event)
        self._notice(event["type"])

    def _notice(self, sign: str) -> None:
        """End at once: whatever the supervisor would do next must not happen."""
        self._signs[sign] += 1
        if self._break is not None and self._break[:2] == (sign, self._signs[sign]):
            self._end()

    def _end(self) -> None:
        if self._break is not None and self._break.kills:
            os.kill(self._lives.all[-1].pid, signal.SIGKILL)
        else:
            self._hung_up.set()

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
        else:
            self._notice("accepted")
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
    """Send ``messages`` of ``senders`` while the supervisor is killed ``kills`` times; ``folder`` is empty.

    After ``limit`` seconds it waits no longer.
    """
    rng = random.Random(seed)
    sent = [Message(number, number % senders, rng, modes) for number in range(messages)]
    lives = Lives(folder, SETTINGS)
    front_end = FrontEnd(lives, sent, breaks_of(kills, rng))
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
        problems=book.audit() + _check_store(book, lives.data_dir),
        lives=len(lives.all),
        resumed=sum(line["resumed"] for life in lives.all for line in life.logged("recovered")),
        sent_again=sum(message.sent - 1 for message in sent),
    )


async def _check_answers(book: Book, client: LineClient) -> list[str]:
    """Nothing is pending, and every outcome that was told can be asked for."""
    problems = []
    for message in book.messages.values():
        if not message.refusals:
            outcome = await client.call("agent.wait", run_id=message.key, session=message.session, timeout_ms=0)
            told = message.outcomes[0]["data"]["reason"]
            if outcome.get("reason", "completed") != told:
                problems.append(f"{message.key} ended {told}, and is remembered as {outcome}")
    status = await client.call("status")
    lanes = status["gateway"]["lanes"]
    pending = (status["gateway"]["runs"], lanes["running"], lanes["waiting"], status["pool"]["waiting"])
    if any(pending):
        problems.append(f"runs, running, waiting, waiting for workers at the end: {pending}")
    return problems


def _check_transcripts(book: Book, data_dir: Path, sessions: list[dict[str, Any]]) -> list[str]:
    """A message that was run stands once in its own session's transcript, one that was not nowhere.

    ``sessions``: what ``sessions.list`` answers.
    """
    problems = []
    owners = {view["transcript"]: view["key"] for view in sessions}
    read = Counter[str]()
    for path in (data_dir / "sessions").rglob("*.jsonl"):
        owner = owners.get(str(path))
        for line in path.read_text().splitlines():
            said = msgspec.json.decode(line).get("message", {})
            nonces = nonces_in(repr(said.get("content")))
            strangers = [nonce for nonce in nonces if book.by_nonce[nonce].session != owner]
            if strangers:
                problems.append(f"{path} of session {owner} has {strangers} of others")
            if said.get("role") == "user":
                read.update(nonces)
    for message in book.messages.values():
        least, most = int(message.fate.startswith("completed")), int(bool(message.starts))
        if not least <= read[message.nonce] <= most:
            problems.append(f"{message.key} ({message.fate}) was read {read[message.nonce]} times")
    return problems


def _check_store(book: Book, data_dir: Path) -> list[str]:
    """Nothing is kept but what has been told, and every run with one outcome; the supervisor has ended.

    Text is kept in other pieces than it was told in, and left out here.
    """
    with closing(sqlite3.connect(data_dir / "pool.db")) as connection:
        query = "SELECT seq, type FROM events WHERE seq <= ? AND type NOT LIKE '%snapshot'"
        kept = dict(connection.execute(query, (book.bookmark,)).fetchall())
        done = Counter(run for (run,) in connection.execute("SELECT run_id FROM events WHERE type = 'done'"))
        unended = connection.execute("SELECT run_id, state FROM runs WHERE state != 'ended'").fetchall()
    missed = [(seq, kept[seq]) for seq in sorted(kept.keys() - book.seen)]
    several = [key for key, count in done.items() if count != 1]
    problems = {"never told": missed, "kept as if they had not ended": unended, "kept with two outcomes": several}
    return [f"{what}: {found[:20]}" for what, found in problems.items() if found]
