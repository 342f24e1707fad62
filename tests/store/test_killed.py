import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store.opening import OpenedDatabase, open_database
from tests.store.disks import table

pytestmark = pytest.mark.process
VICTIM = Path(__file__).with_name("victim.py")


def live_and_die(path: Path, lines: int) -> tuple[int, int]:
    """Kill a life after it has said so many lines; returns its first seq, and the last one it knew to be durable."""
    with subprocess.Popen([sys.executable, "-P", VICTIM, path], stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        first = int(victim.stdout.readline().split()[1])
        heard = [victim.stdout.readline() for _ in range(lines)]
        victim.kill()
        heard += victim.stdout.readlines()
    said = [line.split() for line in heard if line.endswith("\n")]
    assert all(word == "flushed" for word, _ in said)
    return first, int(said[-1][1])


def reopened(path: Path) -> OpenedDatabase:
    return open_database(path, clock=time.time)


def test_what_was_flushed_survives_being_killed_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "pool.db"
    chance = random.Random(20)
    highest = 0
    for _ in range(4):
        first, flushed = live_and_die(path, chance.randrange(50, 400))
        assert first > highest
        opened = reopened(path)
        stored = [seq for (seq,) in table(path, f"SELECT seq FROM events WHERE seq >= {first} ORDER BY seq")]
        assert (opened.loaded.was_clean, opened.loaded.quarantined) == (False, None)
        assert stored[0] == first
        assert stored == list(range(first, stored[-1] + 1))
        assert stored[-1] >= flushed
        assert opened.loaded.runs[0].body_hash == str(stored[-1])
        assert opened.database.event_count == len(table(path, "SELECT seq FROM events"))
        highest = stored[-1]
        assert opened.loaded.first_seq > highest
        opened.database.close()
