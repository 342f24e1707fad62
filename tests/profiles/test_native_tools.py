"""The tools that settings may name are those that the bundled agent has."""

from agent.tools.catalogue import TOOL_NAMES
from profiles import KNOWN_TOOLS


def test_the_known_tools_are_the_agents_own() -> None:
    assert sorted(KNOWN_TOOLS["native"]) == sorted(TOOL_NAMES)
