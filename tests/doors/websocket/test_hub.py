"""Telling everybody of events: at the pace at which the server itself can send them."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio

from doors.http.services import HttpServices
from doors.websocket import hub as hubs
from doors.websocket.events import OutboundEvent
from doors.websocket.frames import SocketLimits
from doors.websocket.hub import EventHub


class Gateway:
    """Pushes one batch of events to whoever subscribes; then ends the subscription as behind, once, and is quiet."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.since: list[int] = []

    async def call(self, method: str, params: dict[str, Any], caller: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if method == "status":
            return SimpleNamespace(gateway=SimpleNamespace(events=SimpleNamespace(head=50_000)))
        self.since.append(params["since"])
        caller.start(lambda: self._push(caller))
        return None

    async def _push(self, caller: Any) -> None:
        if len(self.since) > 1:
            await trio.sleep_forever()
        call = {"id": "t1", "name": "bash", "input_preview": "", "state": "DONE"}
        event = {"ts": 1.0, "session": "alice", "run_id": "r1", "type": "tool:end", "data": {"call": call}}
        events = [{**event, "seq": 50_001 + number} for number in range(self.count)]
        await caller.push_encoded("events", msgspec.json.encode({"events": events}))
        await caller.push_encoded("subscription_ended", b'{"bookmark":70000,"reason":"behind"}')


class Listener:
    """Says how many events came before it was let keep up."""

    def __init__(self) -> None:
        self.heard: list[int] = [0]
        self.missed = 0
        self.presence: dict[str, Any] = {}

    def on_event(self, _event: OutboundEvent) -> None:
        self.heard[-1] += 1

    async def wait_drained(self) -> None:
        await trio.lowlevel.checkpoint()
        self.heard.append(0)

    def on_gap(self) -> None:
        self.missed += 1


async def test_events_are_told_some_at_a_time_and_nobody_is_left_behind(
    nursery: trio.Nursery, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert autojump_clock
    monkeypatch.setattr(hubs, "_DELIVERIES_PER_STEP", 20)
    gateway, listeners = Gateway(95), [Listener(), Listener()]
    hub = EventHub(cast("HttpServices", gateway), SocketLimits())
    await nursery.start(lambda task_status: hub.run(task_status=task_status))
    for listener in listeners:
        hub.add_listener(listener)
    await trio.sleep(1)
    for listener in listeners:
        assert sum(listener.heard) == 95
        assert max(listener.heard) <= 11, "ten at a time for two, and one"
        assert listener.missed == 0
    assert gateway.since == [30_000, 70_000], (
        "it looks back at first, and goes on from the bookmark where it was behind"
    )


async def test_who_listens_to_nothing_costs_nothing_after_a_minute(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    assert autojump_clock
    gateway, listener = Gateway(0), Listener()
    hub = EventHub(cast("HttpServices", gateway), SocketLimits())
    await nursery.start(lambda task_status: hub.run(task_status=task_status))
    hub.add_listener(listener)
    hub.remove_listener(listener)
    await trio.sleep(61)
    hub.add_listener(listener)
    await trio.sleep(1)
    assert gateway.since == [30_000, 70_000, 30_000], "it begins anew"
