"""What the store's tests share: a place for the file, a disk under it, an ear for what it tells."""

from pathlib import Path

import pytest

from tests.store.disks import Disk
from tests.store.stores import Troubles


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool.db"


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def troubles() -> Troubles:
    return Troubles()
