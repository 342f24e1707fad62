"""Server-sent events: the same data however the bytes are cut, and nothing without a bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.sse import EventTooLong, SseReader


def events_of(*chunks: bytes, limit: int = 1000) -> list[bytes]:
    reader = SseReader(limit)
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata:b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
        (b"data: a\ndata\ndata: b\n\n", [b"a\n\nb"]),
        (b"data: {\ndata:  1}\n\n", [b"{\n 1}"]),
        (b": still here\n\n:\ndata: a\n: or there\n\n", [b"a"]),
        (b"event: message\nid: 7\nretry: 3\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"database: a\ndata : b\n\n", []),
        (b"\n\n\n", []),
        (b"data: a\n\ndata: last", [b"a", b"last"]),
        (b"data: last\n", [b"last"]),
        (b"data: last\r", [b"last"]),
        ("data: \u2028 stays \x85\n\n".encode(), ["\u2028 stays \x85".encode()]),
        (b"", []),
    ],
)
def test_data_is_collected_and_the_rest_passed_over(stream: bytes, events: list[bytes]) -> None:
    assert events_of(stream) == events
    assert events_of(*(bytes([byte]) for byte in stream)) == events


@given(st.lists(st.sampled_from([b"data: a", b"data:", b"\n", b"\r\n", b"\r", b":x", b"id: 1", b"\xff"])), st.data())
def test_however_the_bytes_are_cut_the_events_are_the_same(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events_of(*chunks) == events_of(stream)


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 20, b"data: 0123\n" * 4, b": " + b"x" * 20 + b"\n\n"])
def test_a_line_and_an_event_have_a_bound(stream: bytes) -> None:
    assert events_of(b"data: fits\n\n" * 9, limit=12) == [b"fits"] * 9
    with pytest.raises(EventTooLong, match="longer than 12 bytes"):
        events_of(stream, limit=12)
    with pytest.raises(EventTooLong, match="longer than 12 bytes"):
        events_of(*(bytes([byte]) for byte in stream), limit=12)
