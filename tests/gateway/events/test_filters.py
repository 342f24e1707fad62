"""What a reader of one run sees beside it."""

import msgspec
import pytest

from gateway.events.cursor import EventFilter
from wire.events import EventChannel
from wire.messages import EventEnvelope


def event(kind: str, run_id: str | None) -> EventEnvelope:
    return EventEnvelope(
        seq=1, ts=0.0, session="ada", channel=EventChannel.MONITOR, type=kind, data=msgspec.Raw(b"{}"), run_id=run_id
    )


@pytest.mark.parametrize(
    ("kind", "run_id", "seen"),
    [
        ("error", "r1", True),
        ("error", "r2", False),
        ("error", None, False),
        ("agent_resumed", None, True),
        ("exec_exit", None, True),
        ("exec_exit", "r2", False),
        ("alert", None, True),
        ("heartbeat", None, False),
    ],
)
def test_who_follows_a_run_also_hears_what_its_session_does_beside_all_runs(
    kind: str, run_id: str | None, *, seen: bool
) -> None:
    assert EventFilter(session="ada", run_id="r1").admits(event(kind, run_id)) is seen
