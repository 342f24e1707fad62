"""A life to be killed: ``python victim.py DATABASE`` stores events and runs, and says what has been flushed."""

import sys
import time
from pathlib import Path

import trio

from store.records import EventRow, RunRow, RunState
from store.settings import StoreSettings
from store.store import open_store
from wire.units import Seconds


def say(*words: object) -> None:
    """One line, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def live(path: Path) -> None:
    """Say ``first SEQ CLEAN``, then for ever ``flushed SEQ``."""
    settings = StoreSettings(stall=Seconds(1000))
    async with open_store(path, settings, on_trouble=lambda *told: say("trouble", *told)) as store:
        seq = store.loaded.first_seq
        say("first", seq, store.loaded.was_clean)
        while True:
            size = seq % 7 + 1
            store.put_events(
                EventRow(seq=seq + n, ts=time.time(), session="s", channel="progress", type="t", data=b"{}")
                for n in range(size)
            )
            seq += size
            store.put_run(
                RunRow(
                    principal="p",
                    session="s",
                    run_id="r",
                    state=RunState.STARTED,
                    body_hash=str(seq - 1),
                    request=b"{}",
                    accepted_at=1.0,
                )
            )
            store.record_seq(seq - 1)
            if await store.flush():
                say("flushed", seq - 1)


if __name__ == "__main__":
    trio.run(live, Path(sys.argv[1]))
