"""The role of a session: every setting in its order, and the answer's source."""

from typing import Any

import msgspec
import pytest

from router.agents import find_role
from router.settings import RoleTables
from router.source import MessageSource, Peer
from tests.router.sources import source

Path = tuple[str, ...]

TOPIC = source(chat_type="group", chat_id="-1", topic_id="7", account_id="x")
THREAD = source(channel="discord", chat_type="thread", chat_id="t", guild_id="g", parent_peer=Peer("channel", "c"))

ORDERS: list[tuple[MessageSource, list[Path]]] = [
    (
        TOPIC,
        [
            ("telegram", "groups", "-1", "topics", "7"),
            ("telegram", "groups", "*", "topics", "7"),
            ("telegram", "groups", "-1", "role"),
            ("telegram", "groups", "*", "role"),
            ("telegram", "accounts", "x"),
            ("telegram", "default"),
            ("agents", "a"),
        ],
    ),
    (
        source(chat_type="group", chat_id="-1"),
        [
            ("telegram", "groups", "-1", "role"),
            ("telegram", "groups", "*", "role"),
            ("telegram", "accounts", "default"),
            ("telegram", "default"),
            ("agents", "a"),
        ],
    ),
    (source(), [("telegram", "accounts", "default"), ("telegram", "default"), ("agents", "a")]),
    (
        THREAD,
        [
            ("discord", "guilds", "g", "channels", "t"),
            ("discord", "guilds", "g", "channels", "c"),
            ("discord", "guilds", "g", "role"),
            ("discord", "default"),
            ("agents", "a"),
        ],
    ),
    (
        source(channel="discord", chat_type="channel", chat_id="c", guild_id="g"),
        [
            ("discord", "guilds", "g", "channels", "c"),
            ("discord", "guilds", "g", "role"),
            ("discord", "default"),
            ("agents", "a"),
        ],
    ),
    (source(channel="discord"), [("discord", "default"), ("agents", "a")]),
    (source(channel="slack", chat_type="channel"), [("channels", "slack"), ("agents", "a")]),
]


def tables(*paths: Path) -> RoleTables:
    """Role tables in which each of these settings gives a role named as itself."""
    content: dict[str, Any] = {}
    for path in paths:
        *inner, last = path
        table = content
        for part in inner:
            table = table.setdefault(part, {})
        table[last] = ".".join(path)
    return msgspec.convert(content, RoleTables)


STEPS = [(message, order, step) for message, order in ORDERS for step in range(len(order))]


@pytest.mark.parametrize(("message", "order", "step"), STEPS)
def test_each_setting_gives_way_to_the_more_specific_ones_only(
    message: MessageSource, order: list[Path], step: int
) -> None:
    found = find_role(tables(*order[step:]), message, "a")
    assert found.role == found.source == ".".join(order[step])
    assert found.unset == [".".join(path) for path in order[:step]]


@pytest.mark.parametrize(("message", "order"), ORDERS)
def test_without_any_of_its_settings_the_role_is_the_default(message: MessageSource, order: list[Path]) -> None:
    everybody_elses = {path for _, others in ORDERS for path in others} - set(order)
    found = find_role(tables(*everybody_elses), message, "a")
    assert (found.role, found.source) == ("default", "default")
    assert found.unset == [".".join(path) for path in order]


def test_the_tables_of_groups_say_nothing_about_direct_messages() -> None:
    everywhere = tables(("telegram", "groups", "*", "role"), ("telegram", "groups", "5", "role"))
    assert find_role(everywhere, source(chat_id="5"), "a").role == "default"
    assert find_role(everywhere, source(chat_type="channel", chat_id="6"), "a").role == "telegram.groups.*.role"
