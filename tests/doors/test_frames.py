"""What is sent over the control socket is one line; a request that never waits costs no task (``run_eagerly``)."""

import contextvars
import json
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from doors.control.connection import run_eagerly
from doors.control.frames import encode_error, encode_push, encode_result
from errors import UsageError

BREAKS = st.sampled_from(["\r\n", *'\n\r\u2028\u2029\x85\x0b\x0c\x1c"\\ä'])
TEXTS = st.lists(BREAKS | st.text(max_size=3), max_size=5).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def raws(draw: st.DrawFn) -> msgspec.Raw:
    """JSON as it may come from elsewhere: indented, with line ends of any system, with or without escapes."""
    text = json.dumps(draw(VALUES), indent=draw(st.sampled_from([None, 2])), ensure_ascii=draw(st.booleans()))
    return msgspec.Raw(text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\r"]))).encode())


def plain(value: Any) -> Any:
    """What a result means."""
    match value:
        case msgspec.Raw():
            return json.loads(bytes(value))
        case list():
            return [plain(each) for each in value]
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case _:
            return value


def read(line: bytes) -> Any:
    """What is read from it, by a reader that ends lines wherever text may end them."""
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1
    return json.loads(line)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(result=st.recursive(VALUES | raws(), lambda inner: st.lists(inner, max_size=3), max_leaves=4))
@example(result=msgspec.Raw(b'{\n  "pool": {\r\n    "max": 4\n  }\n}'))
@example(result=msgspec.Raw('"a\u2028b\u2029c\x85d"'.encode()))
def test_s11_every_answer_and_push_is_one_line_with_the_same_meaning(result: Any) -> None:
    assert read(encode_result(7, result)) == {"id": 7, "result": plain(result)}
    assert read(encode_push("event", {"data": result}))["data"] == {"data": plain(result)}
    refusal = read(encode_error(7, UsageError("no\u2028\n", found=[result])))
    assert refusal["error"]["data"] == {"found": [plain(result)]}


# --- run_eagerly ------------------------------------------------------------------------------------------------------

name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")


def do_nothing() -> None:
    """Called at the first wait."""


async def test_what_never_waits_is_done_before_any_other_task_has_its_turn(nursery: trio.Nursery) -> None:
    happened: list[str] = []

    async def take_a_turn() -> None:
        happened.append("turn")

    async def answer() -> str:
        return "42"

    nursery.start_soon(take_a_turn)
    assert await run_eagerly(answer(), lambda: happened.append("wait")) == "42"
    assert happened == []


async def test_the_first_wait_is_reported_before_it_begins_and_no_other_is() -> None:
    happened: list[str] = []

    async def answer() -> str:
        for _ in range(2):
            await trio.lowlevel.checkpoint()
            happened.append("goes on")
        return "42"

    assert await run_eagerly(answer(), lambda: happened.append("wait")) == "42"
    assert happened == ["wait", "goes on", "goes on"]


@pytest.mark.parametrize("waits_first", [False, True])
async def test_an_error_comes_out_as_it_is(*, waits_first: bool) -> None:
    async def fail() -> None:
        if waits_first:
            await trio.lowlevel.checkpoint()
        raise KeyError("nothing")

    with pytest.raises(KeyError, match="nothing"):
        await run_eagerly(fail(), do_nothing)


async def test_a_cancellation_reaches_it_and_may_be_caught_in_it(autojump_clock: trio.testing.MockClock) -> None:
    async def give_up() -> str:
        with trio.move_on_after(1):
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
        return "gave up"

    assert await run_eagerly(give_up(), do_nothing) == "gave up"
    with trio.move_on_after(5) as scope:
        await run_eagerly(trio.Event().wait(), do_nothing)
    assert scope.cancelled_caught


async def test_context_variables_stay_its_own_through_every_wait_and_reach_what_it_starts() -> None:
    seen: list[str] = []

    async def note() -> None:
        seen.append(name.get())

    async def answer() -> None:
        await note()
        name.set("alice")
        await trio.lowlevel.checkpoint()
        await note()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note)
        await note()

    await run_eagerly(answer(), do_nothing)
    await note()
    assert seen == ["none", "alice", "alice", "alice", "none"]
