"""Server-sent events, sans-IO: the bytes of a response in, the data of its events out, however the bytes are cut."""

__all__ = ["EventTooLong", "SseReader"]

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
                self._take(line)
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

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        value = value.removeprefix(b" ")
        self._data_bytes += len(value) + 1
        self._check(self._data_bytes, "the data of an event")
        self._data.append(value)
