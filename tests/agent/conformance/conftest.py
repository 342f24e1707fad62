"""A fake model server for the tests of this folder."""

import threading
from collections.abc import Iterator

import pytest

from fixtures.fake_openai import FakeOpenAI


@pytest.fixture(scope="package")
def server() -> Iterator[FakeOpenAI]:
    server = FakeOpenAI()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
