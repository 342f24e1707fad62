"""The store's documents as other rooms ask for them: kept by kind and key, durable when awaited."""

from collections.abc import Generator
from typing import Any

from store.service import Store

__all__ = ["StoredDocuments"]


class StoredDocuments:
    """Implements ``heartbeat.ports.Documents``. Both raise PoolClosed, and ``load`` StoreUnusable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, kind: str) -> dict[str, bytes]:
        """See ``Documents.load``."""
        return await self._store.read_documents(kind)

    def put(self, kind: str, key: str, body: bytes | None) -> "Durable":
        """See ``Documents.put``."""
        self._store.put_document(kind, key, body)
        return Durable(self._store)


class Durable:
    """Awaited, it waits until what was put before is durable, or the disk refuses; need not be awaited."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __await__(self) -> Generator[Any, Any, None]:
        """See the class."""
        return self._wait().__await__()

    async def _wait(self) -> None:
        await self._store.flush()
