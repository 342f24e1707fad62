"""Starts that would fail again: a trial costs no healthy worker its life, and nobody waits for what was refused."""

import math
from typing import Any

import pytest

from errors import ProfileBroken
from pool import stimuli
from pool.stimuli import FailureKind
from tests.pool.world import World, make_profile

A = make_profile("a")
B = make_profile("b")


def test_a_trial_stops_no_healthy_worker_and_waits_for_no_room() -> None:
    world = World(max=2, breaker_failures=1)
    world.acquire("first", A)
    world.exit("w1")  # the breaker is open
    world.release(world.held("quiet", B))
    stopped = world.worker_of(world.held("busy", B))
    world.pass_time(30.0)
    error = world.errors[world.acquire("trial", A)]
    assert isinstance(error, ProfileBroken)
    assert "a trial needs room, and stops no other worker for it" in str(error)
    assert not any(paper.stopping for paper in world.workers.values())
    world.tell(stimuli.StopWorker(stopped))
    world.exit(stopped)
    again = world.acquire("trial", A)
    world.run_until_settled()
    assert again in world.holds


@pytest.mark.parametrize("details", [{"exit_code": 0}, {"exit_code": 2}, {"refused": True}])
def test_a_worker_that_refuses_to_start_is_told_to_all_who_wait_for_its_kind_at_once(details: dict[str, Any]) -> None:
    world = World(max=1)
    requests = [world.acquire(session, A, timeout=math.inf) for session in ("one", "one", "two")]
    other = world.acquire("other", B)
    world.fail("w1", FailureKind.START, stderr_tail="unknown option", **details)
    assert {world.errors[request].code for request in requests} == {"worker_start_failed"}
    assert {world.errors[request].stderr_tail for request in requests} == {"unknown option"}
    assert other not in world.errors
    world.exit("w1")
    world.run_until_settled()
    assert other in world.holds


@pytest.mark.parametrize("details", [{}, {"signal": 9}])
def test_a_start_that_failed_for_another_reason_is_tried_again(details: dict[str, Any]) -> None:
    world = World(max=1)
    request = world.acquire("one", A)
    world.fail("w1", FailureKind.START, **details)
    world.exit("w1")
    world.pass_time(0.5)
    world.run_until_settled()
    assert request in world.holds


def test_a_refusal_is_believed_of_no_kind_that_has_worked_before() -> None:
    world = World(max=2)
    world.held("one", A)
    request = world.acquire("two", A)
    world.fail("w2", FailureKind.START, exit_code=1)
    world.exit("w2")
    world.pass_time(0.5)
    world.run_until_settled()
    assert request in world.holds
