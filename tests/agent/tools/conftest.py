"""A bench over the workspace of the test."""

from pathlib import Path

import pytest

from tests.agent.tools.using import Bench


@pytest.fixture
def bench(workspace: Path) -> Bench:
    return Bench(workspace)
