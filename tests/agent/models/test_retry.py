"""Calling a model again: when, how often, and never twice what was shown."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
import trio

from agent.models.base import Model, ModelError, ModelRequest, Piece, TextPiece, ThinkingPiece, UsagePiece
from agent.models.retry import RetryPolicy, ask_with_retries, next_delay

PASSING = ModelError("busy", transient=True)
REQUEST = ModelRequest("r1.0", [])


def asked_for(seconds: float) -> ModelError:
    return ModelError("busy", transient=True, retry_after=seconds)


@pytest.mark.parametrize(
    ("failures", "error", "shown", "delay"),
    [
        (1, PASSING, False, 2.0),
        (2, PASSING, False, 4.0),
        (3, PASSING, False, 8.0),
        (4, PASSING, False, None),
        (1, PASSING, True, None),
        (1, ModelError("no such model"), False, None),
        (1, asked_for(5.5), False, 5.5),
        (2, asked_for(0.1), False, 4.0),
        (1, asked_for(60), False, 60.0),
        (1, asked_for(61), False, None),
    ],
)
def test_the_delay_is_the_schedules_or_the_servers(
    failures: int, error: ModelError, *, shown: bool, delay: float | None
) -> None:
    assert next_delay(RetryPolicy(), failures, error, shown=shown) == delay


class Unsteady(Model):
    """A model whose attempts are these: pieces, then an error or none."""

    def __init__(self, *attempts: Sequence[Piece | ModelError]) -> None:
        self.attempts = list(attempts)

    async def stream(self, _request: ModelRequest) -> AsyncGenerator[Piece, None]:
        for piece in self.attempts.pop(0):
            await trio.lowlevel.checkpoint()
            if isinstance(piece, ModelError):
                raise piece
            yield piece


async def ask(model: Unsteady) -> tuple[list[Piece], list[dict[str, Any]]]:
    said: list[dict[str, Any]] = []

    def say(name: str, data: dict[str, Any]) -> None:
        assert name == "error"
        said.append(data)

    pieces: list[Piece] = []

    async def take(piece: Piece) -> None:
        pieces.append(piece)

    await ask_with_retries(model, REQUEST, take, say)
    return pieces, said


async def test_an_answer_comes_after_three_retries_each_reported(autojump_clock: trio.testing.MockClock) -> None:
    before = trio.current_time()
    count = UsagePiece(1, 1)  # which shows nothing
    pieces, said = await ask(Unsteady([PASSING], [count, PASSING], [PASSING], [TextPiece(["hello"])]))
    assert pieces == [count, TextPiece(["hello"])]
    assert trio.current_time() - before == pytest.approx(14)
    assert [(data["attempt"], data["delay"]) for data in said] == [(1, 2.0), (2, 4.0), (3, 8.0)]
    assert {(data["severity"], data["phase"]) for data in said} == {("warn", "model")}
    assert said[0]["message"] == "busy; trying again in 2 s (1 of 3)"


async def test_the_fourth_failure_is_the_last(autojump_clock: trio.testing.MockClock) -> None:
    model = Unsteady([PASSING], [PASSING], [PASSING], [ModelError("still busy", transient=True)], [])
    with pytest.raises(ModelError, match="still busy"):
        await ask(model)
    assert len(model.attempts) == 1


@pytest.mark.parametrize("shown", [TextPiece(["hel"]), ThinkingPiece(["hm"])])
async def test_what_was_shown_is_not_said_again(shown: Piece) -> None:
    model = Unsteady([shown, PASSING], [TextPiece(["hello"])])
    with pytest.raises(ModelError, match="busy"):
        await ask(model)
    assert len(model.attempts) == 1
