"""Documents: kept by kind and key, through everything that the other rows go through."""

import sqlite3
from pathlib import Path

import pytest

from heartbeat.ports import Documents
from store.records import StoreUnusable
from store.store import StoredDocuments
from tests.store.disks import Disk, table
from tests.store.stores import FULL, Troubles, a_store


async def test_what_was_put_last_is_there_in_the_next_life_and_what_was_removed_is_not(path: Path) -> None:
    async with a_store(path) as store:
        documents: Documents = StoredDocuments(store)
        for key in "cab":
            documents.put("job", key, f"first {key}".encode())
        documents.put("beat", "a", b"another kind")
        documents.put("job", "a", None)
        await documents.put("job", "b", b"second")
        assert table(path, "SELECT key, body FROM documents WHERE kind = 'job' ORDER BY rowid") == [
            ("c", b"first c"),
            ("b", b"second"),
        ]
    async with a_store(path) as store:
        documents = StoredDocuments(store)
        assert list((await documents.load("job")).items()) == [("c", b"first c"), ("b", b"second")]
        assert await documents.load("beat") == {"a": b"another kind"}
        assert await documents.load("none") == {}


async def test_loading_sees_what_was_put_a_moment_ago_whether_or_not_that_was_awaited(path: Path) -> None:
    async with a_store(path) as store:
        documents = StoredDocuments(store)
        documents.put("job", "a", b"1")
        assert await documents.load("job") == {"a": b"1"}
        documents.put("job", "a", b"2")
        documents.put("job", "b", b"3")
        documents.put("job", "a", None)
        assert await documents.load("job") == {"b": b"3"}


@pytest.mark.parametrize("count", [31, 32, 33, 100])
async def test_any_number_of_any_bytes_is_loaded_whole_and_in_order(path: Path, count: int) -> None:
    expected = {f"k{number}": bytes([number % 256]) * 5000 for number in range(count)}
    async with a_store(path) as store:
        documents = StoredDocuments(store)
        for key, body in expected.items():
            documents.put("job", key, body)
            documents.put("noise", key, b"")
        assert list((await documents.load("job")).items()) == list(expected.items())


async def test_pages_that_are_too_large_for_one_text_are_read_row_by_row(
    path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_store(path, disk=disk) as store:
        documents = StoredDocuments(store)
        await documents.put("job", "a", b"x" * 1000)

        def connect(uri: str) -> sqlite3.Connection:
            connection = disk.connect(uri)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1500)
            return connection

        monkeypatch.setattr(store, "_connect", connect)
        assert await documents.load("job") == {"a": b"x" * 1000}


async def test_while_the_disk_refuses_documents_are_in_memory_and_nothing_waits(
    path: Path, disk: Disk, troubles: Troubles
) -> None:
    async with a_store(path, disk=disk, troubles=troubles) as store:
        documents = StoredDocuments(store)
        documents.put("job", "old", b"1")
        await documents.put("job", "gone", b"1")
        disk.error = FULL
        documents.put("job", "gone", None)
        documents.put("job", "old", b"2")
        await documents.put("job", "new", b"3")
        assert (await troubles.next())[0] == "store_degraded"
        assert await documents.load("job") == {"old": b"2", "new": b"3"}
        disk.error = None
        assert (await troubles.next())[0] == "store_recovered"
        assert table(path, "SELECT key, body FROM documents ORDER BY key") == [("new", b"3"), ("old", b"2")]


async def test_a_file_that_cannot_be_read_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_store(path) as store:

        def connect(_uri: str) -> sqlite3.Connection:
            raise sqlite3.OperationalError("unable to open database file")

        monkeypatch.setattr(store, "_connect", connect)
        with pytest.raises(StoreUnusable, match="cannot be read: unable to open"):
            await StoredDocuments(store).load("job")
