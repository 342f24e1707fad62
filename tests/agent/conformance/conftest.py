"""A fake model server for the tests of this folder."""

from collections.abc import Iterator

import pytest

from fixtures.fake_openai import FakeOpenAI, serving


@pytest.fixture(scope="package")
def server() -> Iterator[FakeOpenAI]:
    with serving() as server:
        yield server
