"""One fake model server for all tests of this folder, and no proxy on the way to it."""

from collections.abc import Iterator
from queue import SimpleQueue

import pytest
import trio

from fixtures.fake_openai import FakeOpenAI, serving


@pytest.fixture(scope="package")
def server() -> Iterator[FakeOpenAI]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


async def until_told(told: SimpleQueue[str], text: str) -> None:
    """Wait until the server has told this of the answer to this text; it may first tell of earlier tests' answers."""
    while await trio.to_thread.run_sync(told.get) != text:
        pass
