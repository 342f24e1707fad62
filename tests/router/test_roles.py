"""The role of a session: every setting in its order, and the answer's source."""

from typing import Any

import msgspec
import pytest

from router.agents import find_role
from router.settings import RoleTables
from router.source import MessageSource, Peer
from tests.router.sources import source

TOPIC = source(chat_type="group", chat_id="-1", topic_id="7", account_id="x")
THREAD_IN_GUILD = source(
    channel="discord", chat_type="thread", chat_id="t", guild_id="g", parent_peer=Peer("channel", "c")
)
ORDERS: list[tuple[MessageSource, str]] = [
    (
        TOPIC,
        (
            "telegram.groups.-1.topics.7 telegram.groups.*.topics.7 telegram.groups.-1.role telegram.groups.*.role "
            "telegram.accounts.x telegram.default agents.a"
        ),
    ),
    (
        source(chat_type="group", chat_id="-1"),
        "telegram.groups.-1.role telegram.groups.*.role telegram.accounts.default telegram.default agents.a",
    ),
    (source(), "telegram.accounts.default telegram.default agents.a"),
    (
        THREAD_IN_GUILD,
        "discord.guilds.g.channels.t discord.guilds.g.channels.c discord.guilds.g.role discord.default agents.a",
    ),
    (
        source(channel="discord", chat_type="channel", chat_id="c", guild_id="g"),
        "discord.guilds.g.channels.c discord.guilds.g.role discord.default agents.a",
    ),
    (source(channel="discord"), "discord.default agents.a"),
    (source(channel="slack", chat_type="channel"), "channels.slack agents.a"),
]


def tables(*paths: str) -> RoleTables:
    """Role tables in which each of these settings gives a role named as itself."""
    content: dict[str, Any] = {}
    for path in paths:
        *inner, last = path.split(".")
        table = content
        for part in inner:
            table = table.setdefault(part, {})
        table[last] = path
    return msgspec.convert(content, RoleTables)


@pytest.mark.parametrize(("message", "order"), ORDERS)
def test_each_setting_of_a_role_gives_way_to_the_more_specific_ones_only(message: MessageSource, order: str) -> None:
    paths = order.split()
    for step, path in enumerate(paths):
        found = find_role(tables(*paths[step:]), message, "a")
        assert (found.role, found.source, found.unset) == (path, path, paths[:step])
    others = {path for _, each in ORDERS for path in each.split()} - set(paths)
    found = find_role(tables(*others), message, "a")
    assert (found.role, found.source, found.unset) == ("default", "default", paths)


def test_the_tables_of_groups_say_nothing_about_direct_messages() -> None:
    everywhere = tables("telegram.groups.*.role", "telegram.groups.5.role")
    assert find_role(everywhere, source(chat_id="5"), "a").role == "default"
    assert find_role(everywhere, source(chat_type="channel", chat_id="6"), "a").role == "telegram.groups.*.role"
