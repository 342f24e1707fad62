"""Text that leaves the ring comes back as it was, cut where a reader has stopped."""

import json
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.events import snapshots
from gateway.events.ring import Item, TextPieceBlock
from gateway.events.snapshots import blocks_between, compact, expand, window_of
from store.records import EventRow
from wire.events import EventChannel
from wire.messages import EventEnvelope


def text(
    first: int, *pieces: str, session: str = "a", run: str | None = "r", type_: str = "text_chunk"
) -> TextPieceBlock:
    texts = "\n".join(map(json.dumps, pieces)).encode()
    return TextPieceBlock(first, first + len(pieces) - 1, 1.0, session, run, type_, texts)


def note(seq: int, session: str = "a") -> EventEnvelope:
    return EventEnvelope(seq, 1.0, session, EventChannel.MONITOR, "note")


def row_of(event: EventEnvelope) -> EventRow:
    return EventRow(seq=event.seq, ts=1.0, session=event.session, channel="monitor", type="note", data=b"null")


def seen(rows: list[EventRow], after: int = 0) -> list[tuple[int, str, Any]]:
    ordered = sorted(rows, key=lambda row: row.seq)
    return [(each.seq, each.session, msgspec.json.decode(each.data)) for each in expand(ordered, after)]


def snapshot(from_seq: int, to_seq: int, content: str) -> dict[str, Any]:
    return {"from_seq": from_seq, "to_seq": to_seq, "text": content}


def test_text_of_one_run_becomes_one_row_with_the_seqs_of_its_pieces() -> None:
    rows = compact([text(7, "he", "llo"), note(9, "b"), text(12, "!")], cuts=[])
    data = b'[[7,["he","llo"]],[12,["!"]]]'
    row = EventRow(seq=12, ts=1.0, session="a", channel="progress", type="text_snapshot", data=data, run_id="r")
    assert rows == [row]


def test_any_other_event_of_the_session_ends_a_row() -> None:
    items: list[Item] = [text(1, "a"), note(2), text(3, "b"), text(4, "c", type_="think_chunk"), text(5, "d", run="q")]
    rows = compact(items, cuts=[])
    assert [(row.seq, row.run_id) for row in rows] == [*((1, "r"), (3, "r"), (4, "r"), (5, "q"))]
    assert [row.type for row in rows[1:3]] == ["text_snapshot", "think_snapshot"]


def test_no_row_crosses_a_cut_nor_a_window() -> None:
    assert [row.seq for row in compact([text(1, "a"), note(2, "b"), text(3, "c")], cuts=[2, 9])] == [1, 3]
    edge = window_of(1).stop
    assert [row.seq for row in compact([text(edge - 1, "a"), text(edge, "b")], cuts=[])] == [edge - 1, edge]


def test_a_row_has_a_limit() -> None:
    large = "x" * 200_000
    assert len(compact([text(1, large), text(2, large), text(3, "y")], cuts=[])) == 2


def test_what_a_reader_has_seen_is_cut_off() -> None:
    rows = compact([text(7, "he", "llo"), text(12, "!", "?")], cuts=[])
    assert seen(rows) == [(13, "a", snapshot(7, 13, "hello!?"))]
    assert seen(rows, after=7) == [(13, "a", snapshot(8, 13, "llo!?"))]
    assert seen(rows, after=12) == [(13, "a", snapshot(13, 13, "?"))]
    assert seen(rows, after=13) == []


def test_a_reader_of_one_session_gets_the_rows_of_a_run_as_one_snapshot() -> None:
    rows = compact([text(1, "a"), note(2, "b"), text(3, "c")], cuts=[2])
    assert len(rows) == 2
    assert seen(rows) == [(3, "a", snapshot(1, 3, "ac"))]


def test_a_long_text_comes_in_several_snapshots() -> None:
    found = seen(compact([text(1, *["x" * 6000] * 5, "y" * 20_000, "z")], cuts=[]))
    expected = [(2, 12_000), (4, 12_000), (5, 6000), (6, 20_000), (7, 1)]
    assert [(seq, len(data["text"])) for seq, _, data in found] == expected
    assert [data["from_seq"] for _, _, data in found] == [1, 3, 5, 6, 7]


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_blocks_are_contiguous_and_lie_within_one_window(first: int, count: int) -> None:
    blocks = list(blocks_between(first, first + count))
    assert [seq for begin, end in blocks for seq in range(begin, end)] == list(range(first, first + count))
    for begin, end in blocks:
        assert end - begin <= snapshots.BLOCK
        assert end - 1 in window_of(begin)


pieces = st.text(max_size=4)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(pieces, max_size=4)), max_size=30), st.data())
def test_a_reader_that_stops_at_any_event_has_seen_everything_up_to_it(
    script: list[tuple[str, list[str]]], data: st.DataObject
) -> None:
    told: dict[int, tuple[str, str | None]] = {}
    items: list[Item] = []
    seq = 1
    with patch.object(snapshots, "BLOCK", 4), patch.object(snapshots, "WINDOW", 8):
        for session, texts in script:
            if not texts:
                items.append(note(seq, session))
                told[seq] = (session, None)
            for begin, end in blocks_between(seq, seq + len(texts)):
                block = text(begin, *texts[begin - seq : end - seq], session=session)
                items.append(block)
                told.update(zip(range(begin, end), ((session, piece) for piece in block_texts(block)), strict=True))
            seq += max(1, len(texts))
        cuts = sorted(
            data.draw(st.sets(st.sampled_from([i.seq for i in items if isinstance(i, EventEnvelope)] or [0])))
        )
        rows = [*compact(items, cuts), *(row_of(item) for item in items if isinstance(item, EventEnvelope))]
    for row in rows:
        assert not [cut for cut in cuts if first_in(row) < cut < row.seq]
    bookmark = data.draw(st.integers(0, seq))
    for number, session, content in seen(rows, bookmark):
        due = [told[each] for each in range(bookmark + 1, number + 1) if each in told]
        assert {each[0] for each in due} == {session}
        assert "".join(each[1] or "" for each in due) == (content["text"] if content else "")
        assert content is None or (content["from_seq"], content["to_seq"]) == (number - len(due) + 1, number)
        bookmark = number
    assert not [each for each in told if each > bookmark]


def block_texts(block: TextPieceBlock) -> list[str]:
    return [json.loads(piece) for piece in block.pieces()]


def first_in(row: EventRow) -> int:
    groups = msgspec.json.decode(row.data)
    return int(groups[0][0]) if groups else row.seq
