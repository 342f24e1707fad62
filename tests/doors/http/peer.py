"""The other end of an HTTP connection in tests: sends exactly the bytes it is given, reads what it is asked for."""

import contextlib
import json
from typing import Any, NamedTuple, Self

import h11
import trio

TOKEN = "a-token-of-the-tests-0123456789"
GET = f"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
POST = GET.replace(b"GET /health", b"POST /api/echo")


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error


class HttpPeer:
    """A client's connection. ``token``: shown with every request that does not say otherwise."""

    def __init__(self, stream: trio.SocketStream, host: str, token: str | None) -> None:
        self.stream = stream
        self.host = host
        self.token = token
        self._http = h11.Connection(h11.CLIENT)
        self._text = b""

    @classmethod
    async def connect(cls, url: str, token: str | None = TOKEN) -> Self:
        host = url.removeprefix("http://")
        name, _, port = host.rpartition(":")
        return cls(await trio.open_tcp_stream(name.strip("[]"), int(port)), host, token)

    async def send_raw(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> None:
        """Send a request; ``body`` is sent as it is where it is bytes, else as JSON."""
        given = {"host": self.host, **({"authorization": f"Bearer {self.token}"} if self.token else {})}
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        if body is not None:
            given |= {"content-type": "application/json", "content-length": str(len(content))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        fields = [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value]
        request = h11.Request(method=method, target=path, headers=fields)
        events: list[h11.Event] = [request, *([h11.Data(data=content)] if content else []), h11.EndOfMessage()]
        await self.send_raw(b"".join(self._http.send(event) or b"" for event in events))

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request and read its answer; the connection may be used again."""
        await self.send(method, path, body, **headers)
        return await self.read()

    async def read(self) -> Answer:
        """The answer to what was sent."""
        head = await self.head()
        body = b""
        while part := await self.part():
            body += part
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return Answer(head.status_code, {name.decode(): value.decode() for name, value in head.headers}, body)

    async def head(self) -> h11.Response:
        while not isinstance(event := await self._event(), h11.Response):
            pass
        return event

    async def open(self, path: str, **headers: str) -> h11.Response:
        """Ask for something that goes on; its parts follow."""
        await self.send("GET", path, **headers)
        return await self.head()

    async def part(self) -> bytes:
        """The next piece of the body; nothing at its end."""
        event = await self._event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        assert isinstance(event, h11.EndOfMessage), event
        return b""

    async def message(self) -> dict[str, Any] | None:
        """The next message of a stream of events: id, event, data (as JSON), comment. None at its end."""
        while b"\n\n" not in self._text:
            if not (part := await self.part()):
                return None
            self._text += part
        whole, _, self._text = self._text.partition(b"\n\n")
        return _fields(whole)

    async def take(self, count: int) -> list[dict[str, Any]]:
        """The next messages of a stream."""
        found = [message for _ in range(count) if (message := await self.message()) is not None]
        assert len(found) == count
        return found

    async def rest(self) -> list[dict[str, Any]]:
        """All messages up to the end."""
        found = []
        while (message := await self.message()) is not None:
            found.append(message)
        return found

    async def _event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self.stream.receive_some(65536))
        return event

    async def is_closed(self) -> bool:
        """Read on until the server has closed the connection: in 20 s, or the test fails."""
        with trio.fail_after(20), contextlib.suppress(trio.BrokenResourceError):
            while await self.stream.receive_some(65536):
                pass
        return True


def _fields(message: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in message.decode().split("\n"):
        name, _, value = line.partition(":")
        found[name or "comment"] = json.loads(value) if name == "data" else value.strip()
    return found


async def answer_to(peer: HttpPeer, data: bytes) -> bytes:
    """All that is answered to some bytes until the server closes the connection."""
    answer = b""

    async def send() -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            await peer.send_raw(data)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with contextlib.suppress(trio.BrokenResourceError):
                while part := await peer.stream.receive_some(65536):
                    answer += part
    return answer
