"""What runs have come to: by agent and reason, with tokens and cost."""

import msgspec
import pytest
from trio.testing import wait_all_tasks_blocked

from gateway.runs.figures import AgentUsage, RunFigures
from tests.gateway.world import World
from wire.messages import TokenUsage


def usage_of(world: World) -> list[AgentUsage]:
    return world.gateway.run_registry.figures.usage()


async def test_every_run_counts_once_by_its_agent_and_reason(world: World) -> None:
    await world.ask("say hi")
    await world.ask("fail", "bob", agent="ops")
    await world.ask("/help")
    main, ops = world.gateway.run_registry.figures.runs()
    assert (main.agent, main.ended) == ("main", {"completed": 2})
    assert (ops.agent, ops.ended) == ("ops", {"error": 1})
    assert sum(main.took.counts) == sum(main.waited.counts) == 1, "a slash command has no turn"


async def test_tokens_count_when_they_are_told_and_the_result_adds_only_what_is_new(world: World) -> None:
    worker = await world.hanging()
    worker.tell("token_usage", input_tokens=10, output_tokens=1, cost=0.25)
    await wait_all_tasks_blocked()
    assert usage_of(world) == [AgentUsage("main", "default", 10, 1, 0.25)], "in the turn"
    worker.tell("token_usage", input_tokens=30, output_tokens=4, cost=0.5)
    worker.finish(usage={"input_tokens": 31, "output_tokens": 4, "cost": 0.5})
    await wait_all_tasks_blocked()
    assert usage_of(world) == [AgentUsage("main", "default", 31, 4, 0.5)]


async def test_runs_that_share_a_turn_do_not_count_its_tokens_twice(world: World) -> None:
    worker = await world.hanging()
    await world.begin("left")
    worker.consume()
    worker.finish(usage={"input_tokens": 7, "output_tokens": 2})
    await wait_all_tasks_blocked()
    assert usage_of(world) == [AgentUsage("main", "default", 7, 2, None)]
    assert world.gateway.run_registry.figures.runs()[0].ended == {"completed": 2}


async def test_what_a_worker_used_before_it_died_counts_beside_what_the_next_one_uses(world: World) -> None:
    worker = await world.hanging(retry_safe=True)
    worker.tell("token_usage", input_tokens=100, output_tokens=10)
    worker.die()
    await wait_all_tasks_blocked()
    world.launcher.running("hang").finish(usage={"input_tokens": 80, "output_tokens": 20})
    await wait_all_tasks_blocked()
    assert usage_of(world) == [AgentUsage("main", "default", 180, 30, None)]


async def test_the_model_that_a_message_chose_is_the_label(world: World) -> None:
    worker = await world.hanging(model="acme/small")
    worker.finish(usage={"input_tokens": 7, "output_tokens": 2})
    await wait_all_tasks_blocked()
    assert [(each.model, each.input_tokens) for each in usage_of(world)] == [("small", 7)]


@pytest.mark.parametrize(
    ("told", "counted"),
    [
        (TokenUsage(-5, -5, -1.0), (0, 0, 0.0)),
        (TokenUsage(10**300, 10**300, 1e300), (10**9, 10**9, 1e6)),
    ],
)
def test_no_word_of_an_agent_makes_a_sum_go_down_or_beyond_what_a_number_holds(
    told: TokenUsage, counted: tuple[int, int, float]
) -> None:
    figures = RunFigures()
    figures.count_usage("main", None, TokenUsage(), told)
    assert figures.usage() == [AgentUsage("main", "default", *counted)]


def test_the_cost_of_two_parts_is_that_of_those_that_tell_one() -> None:
    free, paid = TokenUsage(1, 1), TokenUsage(1, 1, 0.5)
    parts: list[tuple[TokenUsage, TokenUsage, object]] = [
        *((free, free, msgspec.UNSET), (free, paid, 0.5), (paid, free, 0.5), (paid, paid, 1.0))
    ]
    for one, other, cost in parts:
        assert one.plus(other) == TokenUsage(2, 2, cost)  # type: ignore[arg-type]  # as the table has it
