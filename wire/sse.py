"""Server-sent events, sans-IO: a bounded reader of a response's bytes, and the encoder of subscription events. Pure."""

from typing import Any

import msgspec

_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """A line, or the data of one event, is longer than the limit; the stream is of no further use."""


class SseReader:
    """Collects the ``data`` of events; comments and the fields ``event``, ``id`` and ``retry`` mean nothing here.

    Lines end with LF, CRLF or CR. Several ``data`` lines of one event are joined by LF. Linear in the stream.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._limit = max_event_bytes
        self._at_start = True
        self._after_cr = False
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; the data of the events they completed. Raises EventTooLong."""
        events: list[bytes] = []
        for line in self._lines(chunk):
            if line.startswith(b"data"):
                self._add_data(line)
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
                self._data_bytes = 0
        return events

    def close(self) -> list[bytes]:
        """The stream has ended: what its last lines hold though no blank line, or no line end, came after them."""
        return self.feed(b"\n\n")

    def _lines(self, chunk: bytes) -> list[bytes]:
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        lines = self._complete(chunk[:end]) if end else []
        if end < len(chunk):
            self._line.append(chunk[end:])
            self._line_bytes += len(chunk) - end
            self._check(self._line_bytes, "a line")
        return lines

    def _complete(self, block: bytes) -> list[bytes]:
        lines = b"".join([*self._line, block]).splitlines()
        self._line.clear()
        self._line_bytes = 0
        self._check(max(map(len, lines)), "a line")
        if self._at_start:
            lines[0] = lines[0].removeprefix(_BOM)
            self._at_start = False
        return lines

    def _check(self, size: int, what: str) -> None:
        if size > self._limit:
            raise EventTooLong(f"{what} of the stream is longer than {self._limit} bytes")

    def _add_data(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        value = value.removeprefix(b" ")
        self._data_bytes += len(value) + 1
        self._check(self._data_bytes, "the data of an event")
        self._data.append(value)


STREAM_TYPE = "text/event-stream"
STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class _EventSeq(msgspec.Struct, gc=False):
    seq: int


class _EventsFrame(msgspec.Struct):
    events: list[msgspec.Raw]


class _EventSeqsFrame(msgspec.Struct):
    events: list[_EventSeq]


_events_decoder = msgspec.json.Decoder(_EventsFrame)
_seqs_decoder = msgspec.json.Decoder(_EventSeqsFrame)
_seq_decoder = msgspec.json.Decoder(_EventSeq)
_encode = msgspec.json.Encoder().encode
_LINE_ENDS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")
"""Between JSON's tokens a line end is as good as a space; within its texts there is none."""


def event_messages(data: bytes) -> bytes:
    """A message for each event of a frame ``{"events": [...]}``."""
    data = _in_one_line(data)
    events, places = _events_decoder.decode(data).events, _seqs_decoder.decode(data).events
    return b"".join([b"id: %d\ndata: %b\n\n" % (place.seq, event) for place, event in zip(places, events, strict=True)])


def batch_message(data: bytes) -> bytes:
    """One message for all of them: a list, under the seq of the last one."""
    events = _events_decoder.decode(_in_one_line(data)).events
    return b"id: %d\ndata: [%b]\n\n" % (_seq_decoder.decode(events[-1]).seq, b",".join(events))


def _in_one_line(data: bytes) -> bytes:
    """JSON without line ends, which would be taken for the end of a message's line."""
    return data.translate(_LINE_ENDS_TO_SPACES) if b"\n" in data or b"\r" in data else data


def event_message(name: str, data: bytes) -> bytes:
    """A message of that name with JSON text as its data."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _in_one_line(data))


def stream_message(name: str, seq: int, facts: dict[str, Any]) -> bytes:
    """A message of the stream itself, under the seq to go on from."""
    return b"id: %d\n%b" % (seq, event_message(name, _encode(facts)))
