"""What the table of runs holds is bounded in bytes too: messages that wait, and outcomes that may be asked for."""

from typing import Any

import pytest

from errors import PoolSaturated
from gateway.runs.index import AcceptedRun, RunIndex
from gateway.settings import CurrentSettings, GatewaySettings
from wire.units import ByteCount

WALL = 1_700_000_000.0


def accept(runs: RunIndex, run_id: str, request: bytes = b"{}", now: float = 0.0) -> AcceptedRun:
    answer = runs.accept("uid:1", "s", run_id, run_id, now, wall_now=WALL + now, request=request)
    assert isinstance(answer, AcceptedRun)
    return answer


def table(**limits: int) -> RunIndex:
    sizes: dict[str, Any] = {name: ByteCount(value) for name, value in limits.items()}
    return RunIndex(CurrentSettings(GatewaySettings(**sizes)))


def test_messages_that_wait_are_bounded_in_bytes_and_make_room_when_they_end() -> None:
    runs = table(pending_bytes=100)
    first = accept(runs, "a", b"x" * 60).run
    with pytest.raises(PoolSaturated, match="pending_bytes"):
        accept(runs, "b", b"x" * 60)
    runs.end(first, b"{}", 0.0, wall_now=WALL)
    second = accept(runs, "b", b"x" * 60).run
    runs.discard(second)
    accept(runs, "c", b"x" * 100)


def test_a_key_that_stood_for_an_ended_run_makes_no_room_it_does_not_take() -> None:
    runs = table(pending_bytes=100)
    old = accept(runs, "a", b"x" * 80).run
    runs.end(old, b"{}", 0.0, wall_now=WALL)
    accept(runs, "a", b"x" * 80, now=10_000.0)
    with pytest.raises(PoolSaturated):
        accept(runs, "b", b"x" * 30)


def test_outcomes_are_bounded_in_bytes_and_the_latest_is_kept_in_any_case() -> None:
    runs = table(outcome_bytes=100)
    first, second = accept(runs, "a").run, accept(runs, "b").run
    runs.end(first, b"x" * 60, 0.0, wall_now=WALL)
    runs.end(second, b"x" * 60, 1.0, wall_now=WALL)
    assert (first.outcome, len(second.outcome or b"")) == (None, 60)
    third = accept(runs, "c").run
    runs.end(third, b"x" * 500, 2.0, wall_now=WALL)
    assert (second.outcome, len(third.outcome or b"")) == (None, 500)


def test_an_outcome_whose_time_is_over_makes_room_for_others() -> None:
    runs = table(outcome_bytes=100)
    first = accept(runs, "a").run
    runs.end(first, b"x" * 90, 0.0, wall_now=WALL)
    runs.expire(601.0)
    second, third = accept(runs, "b").run, accept(runs, "c").run
    runs.end(second, b"x" * 50, 602.0, wall_now=WALL)
    runs.end(third, b"x" * 50, 602.0, wall_now=WALL)
    assert (len(second.outcome or b""), len(third.outcome or b"")) == (50, 50)
