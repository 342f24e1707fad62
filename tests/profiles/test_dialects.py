"""The registry of dialects: it agrees with the other two, and with the bundled agent."""

import typing

from agent.tools.catalogue import TOOL_NAMES
from gateway.front_ends.protocol import FRONT_ENDS
from profiles.dialects import DIALECTS, DialectName
from rpc.dialects import DIALECTS as TRANSLATORS


def test_every_dialect_has_traits_a_translator_and_a_front_end() -> None:
    assert tuple(DIALECTS) == TRANSLATORS == tuple(FRONT_ENDS) == typing.get_args(DialectName)


def test_the_known_tools_are_the_agents_own() -> None:
    assert sorted(DIALECTS["native"].known_tools) == sorted(TOOL_NAMES)
