"""The settings file that explains itself: it may never lie about a default."""

import re
import tomllib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.dialects import DIALECTS
from profiles.settings import AgentSettings, RoleSettings
from settings.load import load_settings, parse_settings
from settings.schema import Settings, file_shape
from settings.template import humanize, inline_value, render_template
from wire.units import ByteCount, Seconds

NOWHERE = Path("/nowhere/pool.toml")


def uncommented(text: str) -> str:
    """Every line that shows a default made to set it."""
    return re.sub(r"^#(?=[\w\"])", "", text, flags=re.MULTILINE)


def leaves(table: dict[str, Any], path: tuple[str, ...] = ()) -> list[str]:
    return [
        name
        for key, value in table.items()
        for name in (leaves(value, (*path, key)) if isinstance(value, dict) and value else [".".join((*path, key))])
    ]


@pytest.mark.parametrize("change", [str, uncommented])
def test_the_file_changes_nothing_as_it_is_or_with_every_line_uncommented(change: Callable[[str], str]) -> None:
    loaded = parse_settings(change(render_template(Settings)).replace('\ndata_dir = ""', ""), NOWHERE)
    assert msgspec.structs.replace(loaded, agents={}, roles={}) == load_settings(None)
    assert (loaded.agents, loaded.roles) == ({"main": AgentSettings()}, {"default": RoleSettings()})


def test_every_key_that_has_a_default_is_in_the_file() -> None:
    named = tomllib.loads(uncommented(render_template(Settings)))
    table = humanize(Settings(agents={"main": AgentSettings()}, roles={"default": RoleSettings()}))
    assert table.pop("agents.*.heartbeat") == {}
    assert sorted(leaves(named)) == sorted(leaves(file_shape(table)))


def test_keys_without_a_default_are_shown_with_an_example_that_is_accepted() -> None:
    text = render_template(Settings)
    examples = re.compile(r"^# (\w+ = .*) \(unset by default\)$", re.MULTILINE)
    assert len(examples.findall(text)) >= 10
    of_acp = "|".join(DIALECTS["native"].refused_settings)
    text = re.sub(rf"^# ({of_acp}) = .*$", "", text, flags=re.MULTILINE)
    examples_filled = examples.sub(r"\1", text).replace('default = "..."', 'default = "default"')
    examples_filled = examples_filled.replace('thinking = "..."', 'thinking = "high"')
    examples_filled = examples_filled.replace('base_url = "..."', 'base_url = "http://127.0.0.1:8080/v1"')
    day = 'start = "08:00", end = "22:00", tz = "UTC"'
    loaded = parse_settings(examples_filled.replace('start = "...", end = "...", tz = "..."', day), NOWHERE)
    assert loaded.agents["main"].timeout_seconds == 600.0
    assert loaded.agents["main"].tools == []


def test_nothing_of_our_own_notation_is_left_and_no_line_of_prose_is_too_long() -> None:
    text = render_template(Settings)
    assert "``" not in text
    assert [line for line in text.splitlines() if line.startswith("# ") and len(line) > 102] == []


# --- a small one, word for word -------------------------------------------------------------------------------------


class Taste(StrEnum):
    SWEET = "sweet"
    """As honey."""
    SOUR = "sour"


class Pot(msgspec.Struct, frozen=True):
    """One pot.

    What follows the first paragraph is for those who read the code.
    """

    tea: str
    """What is in it."""
    cups: int = 2


class Room(msgspec.Struct, frozen=True):
    """Any room."""

    windows: int = 1
    """Panes of glass."""


class Kitchen(Room, frozen=True):
    """``[house.kitchen]``: where tea is made."""

    time: Seconds = Seconds(180)
    """How long ``tea`` takes,
    at most."""
    taste: Taste = Taste.SOUR
    size: ByteCount | None = None
    pots: list[Pot] = []
    favourite: Pot | None = None
    by_name: dict[str, Pot] = {}


class House(msgspec.Struct, frozen=True):
    """A house."""

    kitchen: Kitchen = Kitchen()
    door: Literal["open", "shut"] = "shut"
    """Whether one can come in."""
    rooms: dict[str, int] = msgspec.field(default_factory=lambda: {"up stairs": 2})


def test_a_template_reads_like_this() -> None:
    assert render_template(House).partition("\n\n")[2] == (
        """\
# Whether one can come in.
# One of: open, shut.
#door = "shut"

#rooms = { "up stairs" = 2 }


# [house.kitchen]: where tea is made.
[kitchen]

# Panes of glass.
#windows = 1

# How long tea takes, at most.
#time = "3m"

# One of:
#   sweet: As honey.
#   sour
#taste = "sour"

# size = "64MiB" (unset by default)

# An entry, [[kitchen.pots]]: One pot.
#   tea = "..." (needed) # What is in it.
#   cups = 2
#pots = []

# favourite = { tea = "...", cups = 1 } (unset by default)

# An entry, [kitchen.by_name.NAME]: One pot.
#   tea = "..." (needed) # What is in it.
#   cups = 2
#by_name = {}
"""
    )


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((Seconds(n), s) for n, s in ((0, 0), (0.5, "500ms"), (0.0001, 0.0001), (1, "1s"), (90, "90s"), (600, "10m"))),
        *((Seconds(n), s) for n, s in ((7200, "2h"), (86400, "1d"))),
        *((ByteCount(n), s) for n, s in ((0, 0), (1000, 1000), (1536, 1536), (65536, "64KiB"), (3 << 30, "3GiB"))),
        (Taste.SWEET, "sweet"),
        ({"a": None, "b": (Taste.SOUR,)}, {"b": ["sour"]}),
    ],
)
def test_values_are_spelled_as_people_write_them(value: Any, shown: Any) -> None:
    assert humanize(value) == shown


@given(st.floats(0, 1e6) | st.integers(0, 10**6).map(lambda number: number / 1000))
def test_a_spelled_time_is_that_time(seconds: float) -> None:
    assert Seconds.parse(humanize(Seconds(seconds))) == seconds


@given(st.integers(0, 2**53) | st.integers(0, 2**40).map(lambda number: number * 1024))
def test_a_spelled_size_is_that_size(size: int) -> None:
    assert ByteCount.parse(humanize(ByteCount(size))) == size


scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@given(values)
def test_a_value_in_one_line_is_that_value(value: Any) -> None:
    text = inline_value(value)
    assert "\n" not in text
    assert tomllib.loads(f"v = {text}") == {"v": value}
