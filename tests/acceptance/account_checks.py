"""Whether the books of a front end agree with what the supervisor has: its answers, its transcripts, its store."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from tests.acceptance.account_book import Book, nonces_in
from tests.acceptance.line_client import LineClient

_SHOWN = 20


async def check_answers(book: Book, client: LineClient) -> list[str]:
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


def check_transcripts(book: Book, data_dir: Path, sessions: list[dict[str, Any]]) -> list[str]:
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


def check_store(book: Book, data_dir: Path) -> list[str]:
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
    return [f"{what}: {found[:_SHOWN]}" for what, found in problems.items() if found]
