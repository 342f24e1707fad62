"""Subscriptions of several front ends: each has its own, and whoever hears control events attends."""

from pathlib import Path

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import UsageError
from tests.gateway.callers import RecordingCaller
from tests.gateway.world import open_world


async def test_a_subscription_is_ended_by_its_owner_only_who_is_told_where_to_resume(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        begun = await world.call("subscribe", kinds=["done"])
        stranger = RecordingCaller(world.nursery, principal="uid:7")
        with pytest.raises(UsageError, match="there is no subscription"):
            await world.call("unsubscribe", stranger, subscription=begun["subscription"])
        outcome = await world.ask("say hello")
        await wait_all_tasks_blocked()
        ended = await world.call("unsubscribe", subscription=begun["subscription"])
        (events, last) = world.caller.pushed
        assert events[1]["subscription"] == begun["subscription"]
        assert [(event["type"], event["run_id"]) for event in events[1]["events"]] == [("done", outcome.run_id)]
        assert last == ("subscription_ended", {**ended, "reason": "unsubscribed"})
        assert ended["bookmark"] >= events[1]["events"][-1]["seq"] > begun["head"]
        with pytest.raises(UsageError, match="there is no subscription"):
            await world.call("unsubscribe", subscription=begun["subscription"])


async def test_somebody_attends_while_a_subscription_hears_control_events(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        attended: list[bool] = []
        await world.call("subscribe", channels=["progress", "monitor"])
        attended.append(world.handlers.attended)
        all_channels = await world.call("subscribe")
        control = await world.call("subscribe", channels=["control"])
        for begun in (all_channels, control):
            attended.append(world.handlers.attended)
            await world.call("unsubscribe", subscription=begun["subscription"])
        attended.append(world.handlers.attended)
        assert attended == [False, True, True, False]
