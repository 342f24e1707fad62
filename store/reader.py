"""Reading events and documents: in threads, each read over a connection of its own, so that it waits for no writer.

A page of rows comes as one JSON text, in one step of the statement; see ``store.database`` for why. JSON cannot hold
any bytes, and SQLite writes floats with 15 digits: data travel as hexadecimal digits, times as two whole numbers.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from store.database import Connect, connect_read_only
from store.records import EventRow

_EVENTS_PER_PAGE = 256
_DOCUMENTS_PER_PAGE = 32
"""On one page; they may be larger than events."""
_COLUMNS = "seq, ts, session, channel, type, run_id, data"
_FRACTIONS = 2**52
"""In a second: exact for every time from 1970-01-01T00:00:01 on."""
_WHOLE = "CAST(ts AS INTEGER)"
_PART = f"CAST((ts - CAST(ts AS INTEGER)) * {_FRACTIONS}.0 AS INTEGER)"
_AS_JSON = f"json_group_array(json_array(seq, {_WHOLE}, {_PART}, session, channel, type, run_id, hex(data)))"
_decoder = msgspec.json.Decoder(list[tuple[int, int, int, str, str, str, str | None, str]])
_document_decoder = msgspec.json.Decoder(list[tuple[int, str, str]])


def read_events(
    path: Path, connect: Connect, *, after: int, before: int, session: str | None, limit: int
) -> list[EventRow]:
    """Events with ``after < seq < before``, of one session or (None) of all, ascending, at most ``limit``. Blocks.

    Raises sqlite3.Error.
    """
    rows: list[EventRow] = []
    with closing(connect_read_only(path, connect)) as connection:
        while len(rows) < limit:
            page = min(_EVENTS_PER_PAGE, limit - len(rows))
            found = _read_page(connection, after, before, session, page)
            rows += found
            if len(found) < page:
                break
            after = found[-1].seq
    return rows


def _read_page(
    connection: sqlite3.Connection, after: int, before: int, session: str | None, limit: int
) -> list[EventRow]:
    source, values = _selection(after, before, session, limit)
    try:
        (text,) = connection.execute(f"SELECT {_AS_JSON} FROM ({source})", values).fetchone()  # noqa: S608  # literals
    except sqlite3.DataError:  # the page is too long for one text
        return [_row(found) for found in connection.execute(source, values)]
    return [
        _row((seq, whole + part / _FRACTIONS, session, channel, kind, run_id, bytes.fromhex(data)))
        for seq, whole, part, session, channel, kind, run_id, data in _decoder.decode(text)
    ]


def _selection(after: int, before: int, session: str | None, limit: int) -> tuple[str, tuple[int | str, ...]]:
    start = f"SELECT {_COLUMNS} FROM events"  # noqa: S608  # literals
    end = "seq > ? AND seq < ? ORDER BY seq LIMIT ?"
    if session is None:
        return f"{start} NOT INDEXED WHERE {end}", (after, before, limit)
    return f"{start} INDEXED BY events_of_session WHERE session = ? AND {end}", (session, after, before, limit)


def _row(values: tuple[int, float, str, str, str, str | None, bytes]) -> EventRow:
    seq, ts, session, channel, kind, run_id, data = values
    return EventRow(seq=seq, ts=ts, session=session, channel=channel, type=kind, run_id=run_id, data=data)


def read_documents(path: Path, connect: Connect, *, kind: str) -> dict[str, bytes]:
    """The documents of a kind by their keys, in the order of their first insertion. Blocks. Raises sqlite3.Error."""
    documents: dict[str, bytes] = {}
    after = -1
    with closing(connect_read_only(path, connect)) as connection:
        while page := _read_document_page(connection, kind, after):
            after = page[-1][0]
            documents.update({key: body for _, key, body in page})
    return documents


def _read_document_page(connection: sqlite3.Connection, kind: str, after: int) -> list[tuple[int, str, bytes]]:
    source = (
        "SELECT rowid AS place, key, body FROM documents NOT INDEXED WHERE rowid > ? AND kind = ? "
        "ORDER BY rowid LIMIT ?"
    )  # fmt: skip
    values = (after, kind, _DOCUMENTS_PER_PAGE)
    try:
        page = f"SELECT json_group_array(json_array(place, key, hex(body))) FROM ({source})"  # noqa: S608  # literals
        (text,) = connection.execute(page, values).fetchone()
    except sqlite3.DataError:  # as above
        return [(place, key, bytes(body)) for place, key, body in connection.execute(source, values)]
    return [(place, key, bytes.fromhex(body)) for place, key, body in _document_decoder.decode(text)]
