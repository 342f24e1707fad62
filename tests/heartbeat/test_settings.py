"""What can be set: defaults, what an agent has otherwise, and what is refused with a sentence that helps."""

import re
from typing import Any

import msgspec
import pytest

from heartbeat.settings import ActiveHours, HeartbeatOverrides, HeartbeatSettings, effective_heartbeat
from wire.units import Seconds, decode_unit


@pytest.mark.parametrize("name", HeartbeatSettings.__struct_fields__)
def test_an_agents_own_value_wins_over_the_default_key_by_key(name: str) -> None:
    assert effective_heartbeat(HeartbeatSettings(), None) == HeartbeatSettings()
    other: dict[str, Any] = {
        "every": Seconds(900),
        "active_hours": ActiveHours(start="08:00", end="20:00"),
        "timeout": Seconds(5),
        "retry_delay": Seconds(1),
        "ack_max_chars": 0,
        "max_retries": 1,
    }
    known = getattr(HeartbeatSettings(), name)
    value: Any = other.get(name, not known if isinstance(known, bool) else "something")
    assert value != known
    assert getattr(effective_heartbeat(HeartbeatSettings(), HeartbeatOverrides(**{name: value})), name) == value


@pytest.mark.parametrize("kind", [HeartbeatSettings, HeartbeatOverrides])
@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"every": "59s"}, 'the shortest is "1m"'),
        ({"every": 1}, "every = 0 turns heartbeats off"),
        ({"timeout": 0}, "no time for a beat"),
        ({"timeout": "2d"}, "no time for a beat"),
        ({"target": " "}, "target is empty"),
        ({"ack_max_chars": -1}, "Expected `int` >= 0"),
        ({"max_retries": 11}, "Expected `int` <= 10"),
        ({"prompt": "x" * 32_769}, "HEARTBEAT.md"),
        ({"exec_prompt": "x" * 32_769}, "HEARTBEAT.md"),
        ({"cron_prompt": "x" * 32_769}, "HEARTBEAT.md"),
        ({"evry": "5m"}, "unknown field `evry`"),
        ({"active_hours": {"start": "08:00"}}, "missing required field `end`"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_write(
    kind: type[HeartbeatSettings | HeartbeatOverrides], table: dict[str, object], problem: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=re.escape(problem)):
        msgspec.convert(table, kind, dec_hook=decode_unit)
