"""What the event of a run's end says: everything that matters, in a piece of bounded size."""

from pathlib import Path

import pytest
from trio.testing import MockClock

from gateway.runs import registry
from tests.gateway.world import open_world


@pytest.mark.parametrize(("limit", "shown", "is_cut"), [(9, "0123456789"[:9], True), (10, "0123456789", False)])
async def test_a_very_long_answer_is_cut_in_its_event_and_whole_in_its_outcome(
    *,
    limit: int,
    shown: str,
    is_cut: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    monkeypatch.setattr(registry, "_DONE_TEXT", limit)
    async with open_world(tmp_path) as world:
        outcome = await world.ask("say 0123456789")
        assert outcome.text == "0123456789"
        (done,) = await world.events("done")
        assert (done["data"]["text"], done["data"].get("truncated")) == (shown, True if is_cut else None)
        assert (done["run_id"], done["data"]["reason"], done["data"]["worker"]) == (outcome.run_id, "completed", "w1")
