"""Event types: what their lines say, and which wait for their commit."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from wire.events import (
    PHASED,
    TROUBLE_TYPES,
    EventChannel,
    EventDisplay,
    EventType,
    channel_of,
    display_line,
    display_of,
)

DISPLAY = EventDisplay(line=("{a}", "b {b.c} of {b.d}", "{flag?it is set}", "{kind=x?an x}", "always"))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({}, "always"),
        ({"a": 0, "flag": False}, "0, always"),
        ({"a": "", "b": {"c": 1}}, "always"),
        ({"a": None, "b": {"c": 1, "d": 2}, "flag": True}, "b 1 of 2, it is set, always"),
        ({"a": "{b.c}", "b": {"c": "{a}", "d": "{b.c}"}}, "{b.c}, b {a} of {b.c}, always"),
        ({"b": "no object"}, "always"),
        ({"a": [1, 2], "kind": "x"}, "2, an x, always"),
        ({"kind": "y"}, "always"),
    ],
)
def test_a_part_without_a_value_is_left_out_and_values_are_not_read_as_parts(data: dict[str, Any], line: str) -> None:
    assert display_line(DISPLAY, data) == line


def test_a_type_that_is_not_listed_is_a_monitor_event_without_a_line() -> None:
    assert (channel_of("worker:odd"), display_of("worker:odd").line) == (EventChannel.MONITOR, ())


def test_a_name_is_words_and_a_phase_stands_behind_a_colon() -> None:
    subjects = {type_.partition(":")[0] for type_ in EventType if ":" in type_}
    assert subjects == PHASED
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*|[a-z]+:[a-z]+", type_) for type_ in EventType)
    assert {type_ for type_ in EventType if type_.partition("_")[0] in PHASED} == {EventType.TOOL_EXECUTED}


def test_every_control_event_is_durable() -> None:
    assert all(type_.is_durable for type_ in EventType if type_.channel is EventChannel.CONTROL)


def test_the_dashboard_lists_the_same_reports_of_trouble() -> None:
    script = (Path(__file__).parents[2] / "doors/dashboard/static/events.js").read_text()
    [listed] = re.findall(r"^const TROUBLE = new Set\((\[.*\])\);$", script, re.MULTILINE)
    assert set(json.loads(listed)) == TROUBLE_TYPES
