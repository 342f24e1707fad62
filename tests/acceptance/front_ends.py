"""Front ends of other makers at one supervisor, and what each of them takes a conversation to be."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

_LIMIT = 90.0
_Message = dict[str, Any]


def said(messages: list[_Message]) -> list[tuple[str, str]]:
    """Who said what, from the messages of a transcript; results of tools say nothing."""
    texts = [(message["role"], _text_of(message["content"])) for message in messages]
    return [(role, text) for role, text in texts if role in ("user", "assistant") and text]


def _text_of(content: str | list[_Message]) -> str:
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return "".join(parts).strip()


class EventReader:
    """``GET /events``. Nothing is read before it is asked for; until then it waits in the pipes."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.seen: list[_Message] = []
        self._lines = lines

    def until(self, is_it: Callable[[_Message], bool]) -> _Message:
        """The next event that is it; those before it are in ``seen``."""
        for line in self._lines:
            field, _, value = line.partition(": ")
            event: _Message = json.loads(value) if field == "data" else {}
            if "seq" in event:
                self.seen.append(event)
                if is_it(event):
                    return event
        raise AssertionError(f"the stream has ended: {self.seen[-5:]}")


@contextmanager
def event_reader(url: str, token: str, session: str) -> Iterator[EventReader]:
    """All that happens in one session, from the beginning."""
    headers = {"authorization": f"Bearer {token}"}
    with (
        httpx.Client(base_url=url, headers=headers, timeout=_LIMIT) as client,
        client.stream("GET", "/events", params={"session": session, "since": 0}) as stream,
    ):
        yield EventReader(stream.iter_lines())


class GatewaySocket:
    """The gateway protocol. What has come is in ``events`` and ``answers`` (by request, in their order)."""

    def __init__(self, connection: ClientConnection) -> None:
        self.events: list[_Message] = []
        self.answers: dict[str, list[_Message]] = {}
        self._connection = connection
        self._ids = itertools.count(1)

    def ask(self, method: str, **params: Any) -> str:
        """Send a request; its id."""
        request_id = str(next(self._ids))
        frame = {"type": "req", "id": request_id, "method": method, "params": params}
        self._connection.send(json.dumps(frame))
        return request_id

    def answer(self, request_id: str, count: int = 1) -> Any:
        """The payload of its last answer of ``count``; none is a refusal."""
        while len(self.answers.get(request_id, ())) < count:
            self._read()
        assert all(answer["ok"] for answer in self.answers[request_id]), self.answers[request_id]
        return self.answers[request_id][count - 1]["payload"]

    def call(self, method: str, **params: Any) -> Any:
        return self.answer(self.ask(method, **params))

    def until(self, name: str, is_it: Callable[[_Message], bool], count: int = 1) -> list[_Message]:
        """The payloads of the first so many events of this name that are it, heard before or yet to come."""
        while len(found := [event for event in self.payloads(name) if is_it(event)]) < count:
            self._read()
        return found

    def payloads(self, name: str) -> list[_Message]:
        return [event["payload"] for event in self.events if event["event"] == name]

    def _read(self) -> None:
        frame = json.loads(self._connection.recv(timeout=_LIMIT))
        if frame["type"] == "event":
            self.events.append(frame)
        else:
            self.answers.setdefault(frame["id"], []).append(frame)


@contextmanager
def gateway_socket(url: str, token: str, protocol: int = 4) -> Iterator[GatewaySocket]:
    """A connection that has been let in, of this version of the protocol."""
    with connect(f"{url.replace('http', 'ws', 1)}/ws", max_size=None) as connection:
        opened = GatewaySocket(connection)
        client = {"id": "test", "version": "1", "platform": "linux", "mode": "cli"}
        hello = opened.call("connect", minProtocol=3, maxProtocol=protocol, client=client, auth={"token": token})
        assert (hello["type"], hello["protocol"]) == ("hello-ok", protocol)
        yield opened
