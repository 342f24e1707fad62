"""What the tests of the doors share: short paths, fake handlers, and a control server to talk to."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A private directory whose path leaves room for a socket's name (pytest's own are too long for that)."""
    with tempfile.TemporaryDirectory(prefix="pool-") as name:
        yield Path(name)
