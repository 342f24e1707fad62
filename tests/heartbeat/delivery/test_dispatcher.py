"""Deliveries in virtual time: tried again, given up, continued by the next supervisor; alerts on a terminal."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import trio

from errors import UsageError
from heartbeat.delivery.channel import TEXT_LIMIT, Alert, DeliveryChannel, DeliveryFailed, Outlet
from heartbeat.delivery.dispatcher import AlertDispatcher, StdoutOutlet, render_alert
from heartbeat.delivery.outbox import ALERT_KIND
from tests.heartbeat.delivery.fakes import Disk, FakeChannel, FakeOutlet, an_alert, wall_clock

pytestmark = pytest.mark.usefixtures("virtual_time")
BUSY = DeliveryFailed("https://hooks.example answered 500")


async def open_one(
    disk: Disk,
    channels: Mapping[str, DeliveryChannel] | None = None,
    outlets: Mapping[str, Outlet] | None = None,
    nursery: trio.Nursery | None = None,
    **options: Any,
) -> AlertDispatcher:
    options = {"last_channel": {}.get, "transaction": disk.together, "clock": wall_clock, **options}
    courier = AlertDispatcher(disk, disk, channels=channels or {}, outlets=outlets or {}, **options)
    await courier.load()
    if nursery is not None:
        await nursery.start(courier.run)
    return courier


def for_hook(alert_id: str, name: str = "ops", **fields: Any) -> Alert:
    return an_alert(alert_id, target=f"webhook:{name}", **fields)


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        {
            "event": record.message,
            "level": record.levelname,
            "defect": record.exc_info and record.exc_info[0],
            **vars(record)["facts"],
        }
        for record in caplog.records
    ]


async def test_an_alert_without_a_channel_is_told_to_its_session_and_to_the_monitor() -> None:
    disk = Disk()
    (await open_one(disk)).accept(an_alert(media=("/w/plot.png",)))
    assert [(session, channel.value, kind) for session, channel, kind, _ in disk.events] == [
        ("alice", "monitor", "heartbeat"),
        ("alice", "progress", "alert"),
    ]
    (event,) = disk.told("alert")
    assert event == {
        "id": "a1",
        "agent": "main",
        "to": "events",
        "reason": "interval",
        "ts": 1_700_000_000.0,
        "text": "the build is red",
        "media": ["/w/plot.png"],
    }


@pytest.mark.parametrize(
    ("fields", "alerts", "states"),
    [
        ({"target": "none"}, [], []),
        ({"session": "bob"}, ["events"], [("alert", "events")]),
        ({"session": "alice"}, ["telegram:12"], [("alert", "telegram:12")]),
        ({"target": "webhook:ops"}, [], [("alert", "webhook:ops")]),
    ],
)
async def test_the_target_decides_who_sees_an_alert(
    fields: dict[str, Any], alerts: list[str], states: list[tuple[str, str]]
) -> None:
    disk = Disk()
    (await open_one(disk, last_channel={"alice": "telegram:12"}.get)).accept(an_alert(**fields))
    assert [event["to"] for event in disk.told("alert")] == alerts
    assert [(event["state"], event["to"]) for event in disk.told("heartbeat")] == states
    assert bool(disk.commits) == bool(states)


async def test_an_alert_handed_over_twice_is_told_once() -> None:
    disk = Disk()
    courier = await open_one(disk)
    courier.accept(an_alert())
    courier.accept(an_alert(text="said otherwise"))
    courier = await open_one(disk)
    courier.accept(an_alert())
    assert len(disk.told("alert")) == 1


@pytest.mark.parametrize("fields", [{"target": "?"}, {"id": ""}, {"id": "a b"}, {"id": "a\r\nx: y"}, {"id": "a" * 129}])
async def test_what_makes_no_sense_is_refused_and_changes_nothing(fields: dict[str, Any]) -> None:
    disk = Disk()
    courier = await open_one(disk)
    with pytest.raises(UsageError):
        courier.accept(msgspec.structs.replace(an_alert(), **fields))
    assert (disk.commits, courier.statistics().accepted) == (0, 0)


async def test_half_a_character_is_replaced() -> None:
    disk = Disk()
    (await open_one(disk)).accept(an_alert(text="a\ud800b"))
    assert disk.told("alert")[0]["text"] == "a?b"


async def test_a_text_of_ten_megabytes_is_cut_and_says_so() -> None:
    disk = Disk()
    (await open_one(disk)).accept(an_alert(text="\u00e4" * 10_000_000, media=("x" * 5000, *"ab" * 30)))
    (event,) = disk.told("alert")
    assert len(event["text"]) < TEXT_LIMIT + 100
    assert event["text"].endswith(f"[{10_000_000 - TEXT_LIMIT} more characters were left out]")
    assert len(event["media"]) == 20
    assert "x" * 5000 not in event["media"]


@pytest.mark.parametrize("lives", range(8))
async def test_a_crash_after_any_commit_tells_each_alert_once(lives: int) -> None:
    """What had not been committed comes again from whoever handed it over, as does what had."""
    disk = Disk(lives)
    courier = await open_one(disk)
    alerts = [an_alert("a1"), for_hook("a2"), an_alert("a3", target="stdout"), an_alert("a4"), for_hook("a5")]
    for alert in alerts:
        courier.accept(alert)
    disk.lives = None
    courier = await open_one(disk)
    for alert in alerts:
        courier.accept(alert)
    states = Counter(event["id"] for event in disk.told("heartbeat"))
    assert states == Counter(alert.id for alert in alerts)
    assert Counter(event["id"] for event in disk.told("alert")) == Counter(["a1", "a4"])
    assert set(disk.documents[ALERT_KIND]) == {alert.id for alert in alerts}


async def test_the_terminal_is_told_once_also_over_a_restart(nursery: trio.Nursery) -> None:
    disk, outlet = Disk(), FakeOutlet()
    courier = await open_one(disk, outlets={"stdout": outlet})
    courier.accept(an_alert("a1", target="stdout"))
    assert outlet.shown == []  # not before it runs
    await nursery.start(courier.run)
    courier.accept(an_alert("a2", target="stdout"))
    await trio.testing.wait_all_tasks_blocked()
    assert outlet.shown == ["a1", "a2"]
    again = await open_one(disk, outlets={"stdout": outlet})
    await nursery.start(again.run)
    again.accept(an_alert("a1", target="stdout"))
    await trio.sleep(10_000)
    assert outlet.shown == ["a1", "a2"]
    assert courier.statistics().delivered == 2


async def test_a_terminal_that_refuses_is_told_later(nursery: trio.Nursery) -> None:
    outlet = FakeOutlet(BUSY, BUSY)
    courier = await open_one(Disk(), outlets={"stdout": outlet}, nursery=nursery)
    courier.accept(an_alert("a1", target="stdout"))
    await trio.sleep(14)
    assert outlet.shown == []
    await trio.sleep(2)
    assert outlet.shown == ["a1"]


async def test_a_webhook_that_refuses_for_an_hour_keeps_its_alert_and_then_shows_it(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    disk, channel = Disk(), FakeChannel()
    channel.always["ops"] = BUSY
    courier = await open_one(disk, {"webhook": channel}, nursery=nursery)
    courier.accept(for_hook("a1"))
    await trio.sleep(3000)
    assert courier.statistics().waiting == 1
    (place,) = courier.statistics().places
    assert (place.to, place.error) == ("webhook:ops", BUSY.message)
    await trio.sleep(600)
    times = [at for at, *_ in channel.tried]
    assert times == [0, 5, 15, 35, 75, 155, 315, 635, 1235, 1835, 2435, 3035]
    figures = courier.statistics()
    assert (figures.waiting, figures.places) == (0, ())
    (lost,) = figures.undeliverable
    assert (lost.id, lost.text, lost.attempts, lost.error) == ("a1", "the build is red", 12, BUSY.message)
    assert [event["state"] for event in disk.told("heartbeat")] == ["alert", "undeliverable"]
    assert [(line["event"], line["alert"]) for line in logged(caplog)] == [("alert_undeliverable", "a1")]
    await trio.sleep(80_000)
    assert len(channel.tried) == 12


async def test_a_restart_goes_on_and_the_pause_with_it(nursery: trio.Nursery) -> None:
    disk, channel = Disk(), FakeChannel()
    channel.plan["ops"] = [BUSY] * 4
    courier = await open_one(disk, {"webhook": channel})
    async with trio.open_nursery() as life:
        await life.start(courier.run)
        courier.accept(for_hook("a1"))
        await trio.sleep(50)
        life.cancel_scope.cancel()
    await open_one(disk, {"webhook": channel}, nursery=nursery)
    await trio.sleep(1000)
    assert [(at, number) for at, _, _, number in channel.tried] == [(0, 1), (5, 2), (15, 3), (35, 4), (75, 5)]
    assert channel.delivered == {"a1": 1}


async def test_a_slow_webhook_holds_up_nobody_but_itself(nursery: trio.Nursery) -> None:
    channel, outlet = FakeChannel(), FakeOutlet()
    channel.always["slow"] = 10.0
    courier = await open_one(Disk(), {"webhook": channel}, {"stdout": outlet}, nursery=nursery)
    for number in range(20):
        courier.accept(for_hook(f"s{number}", "slow"))
    courier.accept(for_hook("quick", "ops"))
    courier.accept(an_alert("shown", target="stdout"))
    await trio.testing.wait_all_tasks_blocked()
    assert (channel.delivered["quick"], outlet.shown) == (1, ["shown"])
    await trio.sleep(201)
    assert channel.most_under_way == 1
    assert sum(channel.delivered.values()) == 21


async def test_a_webhook_that_is_gone_from_the_settings_gives_its_alerts_up(nursery: trio.Nursery) -> None:
    disk, channel = Disk(), FakeChannel()
    channel.always["ops"] = BUSY
    courier = await open_one(disk, {"webhook": channel}, nursery=nursery)
    courier.accept(for_hook("a1"))
    await trio.sleep(1)
    courier.channels = {}
    await trio.sleep(10)
    (lost,) = courier.statistics().undeliverable
    assert lost.error == "the settings have no webhook:ops any more"


async def test_a_defect_of_a_channel_is_logged_and_ends_nothing(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(FakeChannel):
        async def deliver(self, alert: Alert, peer: str, attempt: int) -> None:
            if attempt == 1:
                raise ZeroDivisionError
            await super().deliver(alert, peer, attempt)

    channel = Broken()
    courier = await open_one(Disk(), {"webhook": channel}, nursery=nursery)
    courier.accept(for_hook("a1"))
    await trio.sleep(6)
    assert channel.delivered == {"a1": 1}
    assert [(line["event"], line["level"], line["defect"]) for line in logged(caplog)] == [
        ("alert_delivery_defect", "ERROR", ZeroDivisionError)
    ]


async def test_an_unreadable_document_is_logged_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.documents[ALERT_KIND] = {"a1": b"{", "a2": b'{"id":"a2"}', "a3": b"\xff"}
    courier = await open_one(disk)
    assert [(line["event"], line["alert"]) for line in logged(caplog)] == [
        ("alert_unreadable", f"a{n}") for n in (1, 2, 3)
    ]
    assert len(disk.documents[ALERT_KIND]) == 3
    assert courier.statistics().waiting == 0


async def test_an_idle_dispatcher_sleeps(nursery: trio.Nursery) -> None:
    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, _task: trio.lowlevel.Task) -> None:
            self.count += 1

    await open_one(Disk(), {"webhook": FakeChannel()}, nursery=nursery)
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    await trio.sleep(80_000)
    trio.lowlevel.remove_instrument(steps)
    assert steps.count < 10


def test_an_alert_is_a_head_and_its_text_below() -> None:
    written: list[str] = []
    StdoutOutlet(written.append).show(an_alert(text="first\n\nsecond", media=("/w/plot.png",)))
    assert written == [
        "2023-11-14T22:13:20Z alert main (alice, interval)\n    first\n\n    second\n    MEDIA:/w/plot.png"
    ]


@pytest.mark.parametrize(
    "trick", ["\x1b[2J", "\r", "\x00", "\x9b31m", "\x7f", "\u2028", "\u202e", "\u2066", "\x0b", "\x0c", "\x85"]
)
def test_a_text_cannot_steer_the_terminal(trick: str) -> None:
    shown = render_alert(an_alert(text=f"a{trick}b", session=f"s{trick}", agent=f"m{trick}", media=(f"f{trick}",)))
    assert trick[0] not in shown
    assert len(shown.splitlines()) == 3


def test_a_session_cannot_pretend_to_be_another_line() -> None:
    assert len(render_alert(an_alert(session="x\ny", text="z")).splitlines()) == 2


def test_line_ends_of_other_systems_are_line_ends() -> None:
    assert render_alert(an_alert(text="a\r\nb\tc")).splitlines()[1:] == ["    a", "    b\tc"]


def test_an_output_that_cannot_be_written_is_a_failure_that_may_pass() -> None:
    def broken(line: str) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(DeliveryFailed, match="Broken pipe") as caught:
        StdoutOutlet(broken).show(an_alert())
    assert not caught.value.permanent
