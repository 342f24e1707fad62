"""No proxy on the way to the fake model server."""

from queue import SimpleQueue

import pytest
import trio


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


async def until_told(told: SimpleQueue[str], text: str) -> None:
    """Wait until the server has told this of the answer to this text; it may first tell of earlier tests' answers."""
    while await trio.to_thread.run_sync(told.get) != text:
        pass
