"""Calling hooks: they hear, they may change and drop, and nothing they do wrong ends anything."""

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from gateway.hook_types import AgentBootstrap, Drop, ExcludeFiles, GatewayLifecycle, HookMessage, HookName
from gateway.hooks import HookRunner

HELLO = HookMessage(session="s", text="hello")
START = GatewayLifecycle(data_dir="/d")
BOOT = AgentBootstrap(agent="main", role="default", workspace="/w")


class Warnings(list[str]):
    """What the runner complained about."""

    def __call__(self, text: str, facts: dict[str, Any]) -> None:
        assert set(facts) == {"hook", "place", "event"}
        self.append(text)


@pytest.fixture
def warnings() -> Warnings:
    return Warnings()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a hanging thread waits for; opened at the end, so that none outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def runner(warnings: Warnings, name: HookName, *functions: Any) -> HookRunner:
    return HookRunner({name: functions}, warnings)


async def test_hooks_are_called_in_order_in_a_thread_or_in_the_loop(warnings: Warnings) -> None:
    heard: list[Any] = []

    def plain(event: GatewayLifecycle) -> int:
        heard.append(("plain", event, threading.current_thread() is threading.main_thread()))
        return 5

    async def asynchronous(event: GatewayLifecycle) -> None:
        await trio.lowlevel.checkpoint()
        heard.append(("async", event, threading.current_thread() is threading.main_thread()))

    hooks = runner(warnings, "gateway:start", plain, asynchronous)
    await hooks.notify("gateway:start", START)
    await hooks.notify("gateway:stop", START)
    assert heard == [("plain", START, False), ("async", START, True)]
    assert warnings == []
    assert ("gateway:start" in hooks.table, "gateway:stop" in hooks.table) == (True, False)


async def test_a_message_may_be_changed_by_one_after_the_other_and_dropped(warnings: Warnings) -> None:
    def shout(message: HookMessage) -> str:
        return message.text.upper()

    async def look(message: HookMessage) -> None:
        await trio.lowlevel.checkpoint()

    def drop_loud(message: HookMessage) -> Drop | None:
        return Drop("too loud") if message.text.isupper() else None

    changed = await runner(warnings, "message:sending", look, shout).filter("message:sending", HELLO)
    assert changed == HookMessage(session="s", text="HELLO")
    both = runner(warnings, "message:received", shout, drop_loud, shout)
    assert await both.filter("message:received", HELLO) == Drop("too loud")
    assert await both.filter("message:sending", HELLO) is HELLO
    assert warnings == []


async def test_texts_for_the_system_prompt_and_files_to_leave_out_are_gathered(warnings: Warnings) -> None:
    some = [
        *(lambda e: e.workspace, lambda _e: None, lambda _e: [" two\n", "", ExcludeFiles(("b", "a"))]),
        *(lambda _e: ExcludeFiles(("a",)), lambda _e: [5]),
    ]
    assert await runner(warnings, "agent:bootstrap", *some).bootstrap(BOOT) == (["/w", "two"], ["a", "b"])
    (warning,) = warnings
    assert "returned list, not texts, an ExcludeFiles or None" in warning
    everything = runner(warnings, "agent:bootstrap", *some[:-1], lambda _e: ExcludeFiles())
    assert await everything.bootstrap(BOOT) == (["/w", "two"], None)


def raise_error(_event: object) -> None:
    raise ValueError("boom")


def leave(_event: object) -> None:
    sys.exit(3)


def forget_to_await(event: object) -> Any:
    return fail_in_a_nursery(event)


async def fail_in_a_nursery(_event: object) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        raise ValueError("boom")


async def leave_a_nursery(_event: object) -> None:
    async with trio.open_nursery():
        sys.exit(3)


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (raise_error, "raised ValueError: boom"),
        (leave, "raised SystemExit: 3"),
        (fail_in_a_nursery, "raised ExceptionGroup"),
        (leave_a_nursery, "raised BaseExceptionGroup"),
        (lambda _event: 5, "returned int, not a text, a Drop or None"),
        (forget_to_await, "raised TypeError: Trio expected a sync function"),
    ],
)
async def test_a_hook_that_goes_wrong_is_a_warning_and_changes_nothing(
    warnings: Warnings, hook: Any, words: str
) -> None:
    hooks = runner(warnings, "message:received", hook, lambda message: message.text + "!")
    assert await hooks.filter("message:received", HELLO) == HookMessage(session="s", text="hello!")
    (warning,) = warnings
    assert all(part in warning for part in (words, "test_hook_runner.py:", "message:received"))


@pytest.mark.parametrize("own", [[], [ValueError("boom")]])
async def test_an_interruption_in_a_hooks_nursery_goes_on_its_way_and_only_what_the_hook_did_is_complained_of(
    warnings: Warnings, own: list[Exception]
) -> None:
    async def interrupted(_event: object) -> None:
        await trio.lowlevel.checkpoint()
        raise BaseExceptionGroup("from a nursery", [KeyboardInterrupt(), *own])

    with pytest.raises(BaseExceptionGroup) as raised:
        await runner(warnings, "gateway:start", interrupted).notify("gateway:start", START)
    assert [type(exc) for exc in raised.value.exceptions] == [KeyboardInterrupt]
    assert ["boom" in text for text in warnings] == [True] * len(own)


async def test_a_hook_that_takes_too_long_is_left_behind(
    warnings: Warnings, gate: threading.Event, autojump_clock: MockClock
) -> None:
    async def hang(_event: object) -> None:
        await trio.sleep_forever()

    def block(_event: object) -> str:
        gate.wait()
        return "late"

    assert await runner(warnings, "message:received", hang, block).filter("message:received", HELLO) is HELLO
    assert trio.current_time() == 10.0
    assert ["took longer than 5 s" in text for text in warnings] == [True, True]


async def test_a_function_that_never_returns_is_left_out_until_its_threads_come_back(
    warnings: Warnings, gate: threading.Event, autojump_clock: MockClock
) -> None:
    returned = threading.Semaphore(0)

    def block(_event: object) -> None:
        gate.wait()
        returned.release()

    hooks = runner(warnings, "gateway:start", block)
    for _ in range(6):
        await hooks.notify("gateway:start", START)
    assert trio.current_time() == 20.0
    assert ["left out" in text for text in warnings] == [False] * 4 + [True] * 2
    gate.set()
    for _ in range(4):
        assert returned.acquire(timeout=10)
    while hooks.table["gateway:start"][0].is_stuck:  # the threads have ended; trio is about to hear of it
        await trio.lowlevel.checkpoint()
    del warnings[:]
    await hooks.notify("gateway:start", START)
    assert not any("left out" in text for text in warnings)


async def test_a_cancelled_caller_waits_for_no_hook(warnings: Warnings, gate: threading.Event) -> None:
    ended: list[str] = []

    async def hang(_event: object) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("hang")

    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def block(_event: object) -> None:
        token.run_sync_soon(begun.set)
        gate.wait()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner(warnings, "gateway:start", hang).notify, "gateway:start", START)
            nursery.start_soon(runner(warnings, "gateway:stop", block).notify, "gateway:stop", START)
            await begun.wait()
            nursery.cancel_scope.cancel()
    assert ended == ["hang"]
    assert warnings == []


async def test_what_goes_wrong_while_the_caller_is_cancelled_does_not_reach_it(warnings: Warnings) -> None:
    async def fail_when_cancelled(_event: object) -> None:
        async def fail() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("boom")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()

    with trio.CancelScope() as scope:
        scope.cancel()
        await runner(warnings, "gateway:stop", fail_when_cancelled).notify("gateway:stop", START)
    assert scope.cancelled_caught
    assert len(warnings) == 1
    assert "boom" in warnings[0]
