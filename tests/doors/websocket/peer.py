"""The other end of a WebSocket in tests: frames of JSON, said and heard exactly as the test wants."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Request

from tests.doors.http.peer import TOKEN, HttpPeer

CONNECT = {"minProtocol": 3, "maxProtocol": 4, "client": {"id": "tests", "version": "1"}, "auth": {"token": TOKEN}}


class SocketPeer:
    """A client's connection. What arrives while something else is awaited is kept for later."""

    def __init__(self, http: HttpPeer) -> None:
        self._http = http
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._text = ""
        self.kept: list[dict[str, Any]] = []
        """Frames that arrived while another was awaited."""
        self._ids = 0
        self.nonce = ""
        self.hello: dict[str, Any] = {}
        self.closed: tuple[int, str] | None = None
        """Code and reason, once the server has closed."""

    async def open(
        self, path: str = "/ws", *, extensions: Sequence[Any] = (), is_challenged: bool = True, **headers: str
    ) -> Any:
        """Make the handshake; what it is answered. Where it is accepted the challenge is read, too."""
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send(Request(self._http.host, path, extensions=list(extensions), extra_headers=fields))
        answer = await self._event()
        if is_challenged and isinstance(answer, AcceptConnection):
            challenge = await self.frame()
            assert challenge is not None
            assert challenge["event"] == "connect.challenge"
            self.nonce = challenge["payload"]["nonce"]
        return answer

    async def connect(self, **params: Any) -> dict[str, Any]:
        """Say ``connect``, with these parameters instead of the usual ones; the answer."""
        answer = await self.request("connect", **{**CONNECT, **params})
        self.hello = answer.get("payload", {})
        return answer

    async def send(self, event: Any) -> None:
        await self._http.send_raw(self._ws.send(event))

    async def say(self, frame: Any) -> None:
        """Send a frame: text or bytes as they are, anything else as JSON."""
        if isinstance(frame, bytes):
            await self.send(BytesMessage(data=frame))
        else:
            await self.send(Message(data=frame if isinstance(frame, str) else json.dumps(frame)))

    async def ask(self, method: str, **params: Any) -> str:
        """Send a request; its id."""
        self._ids += 1
        await self.say({"type": "req", "id": str(self._ids), "method": method, "params": params})
        return str(self._ids)

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; its first answer."""
        return await self.answer(await self.ask(method, **params))

    async def run(self, method: str, **params: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Send a request that is answered twice; both payloads, or the error."""
        asked = await self.ask(method, **params)
        first, last = await self.answer(asked), await self.answer(asked)
        return first["payload"], last["payload"] if last["ok"] else last["error"]

    async def leave(self) -> None:
        """Be gone, without a word."""
        await self._http.stream.aclose()

    async def answer(self, request_id: str) -> dict[str, Any]:
        """The next answer to a request."""
        return await self.find(lambda frame: frame["type"] == "res" and frame["id"] == request_id)

    async def event(self, name: str, **facts: Any) -> dict[str, Any]:
        """The payload of the next event of that name with these facts."""
        frame = await self.find(
            lambda frame: (
                frame.get("event") == name
                and facts.items() <= {**frame["payload"].get("data", {}), **frame["payload"]}.items()
            )
        )
        payload: dict[str, Any] = frame["payload"]
        return payload

    async def find(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first frame that is wanted; those before it stay."""
        for number, frame in enumerate(self.kept):
            if wanted(frame):
                return self.kept.pop(number)
        with trio.fail_after(20):
            while (frame_or_end := await self.frame()) is not None:
                if wanted(frame_or_end):
                    return frame_or_end
                self.kept.append(frame_or_end)
        raise AssertionError(f"closed: {self.closed}; kept: {self.kept}")

    @property
    def seqs(self) -> list[int]:
        """The numbers of the events that were kept."""
        return [frame["seq"] for frame in self.kept if frame["type"] == "event"]

    async def rest(self) -> list[dict[str, Any]]:
        """All frames up to the end, those that were kept first."""
        with trio.fail_after(20):
            while (frame := await self.frame()) is not None:
                self.kept.append(frame)
        return self.kept

    async def frame(self) -> dict[str, Any] | None:
        """The next frame; None once the server has closed."""
        while True:
            event = await self._event()
            if event is None:
                return None
            if isinstance(event, CloseConnection):
                self.closed = event.code, event.reason or ""
                return None
            if isinstance(event, Message):
                self._text += str(event.data)
                if event.message_finished:
                    text, self._text = self._text, ""
                    found: dict[str, Any] = json.loads(text)
                    return found

    async def _event(self) -> Any:
        while (event := next(self._ws.events(), None)) is None:
            data = await self._http.stream.receive_some(65536)
            if not data:
                return None
            self._ws.receive_data(data)
        return event
