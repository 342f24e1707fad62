"""The registry of dialects: each has its translator and front end, and the tools of its program."""

import typing

from agent.toolbox import TOOL_NAMES
from gateway.front_ends.protocol import FRONT_ENDS
from profiles.dialects import DIALECTS, DialectName
from rpc.acp.options import AcpOptions
from rpc.dialect import make_dialect
from rpc.settings import RpcSettings


def test_every_dialect_has_traits_a_translator_and_a_front_end() -> None:
    assert tuple(DIALECTS) == typing.get_args(DialectName)
    assert [name for name, traits in DIALECTS.items() if traits.takes_arguments] == list(FRONT_ENDS)
    acp = AcpOptions(cwd="/", journal_dir="/")
    made = [
        make_dialect(name, settings=RpcSettings(), allow_bash=False, acp=acp if traits.keeps_journal else None)
        for name, traits in DIALECTS.items()
    ]
    assert [dialect.name for dialect in made] == list(DIALECTS)


def test_the_known_tools_are_the_agents_own() -> None:
    assert sorted(DIALECTS["native"].known_tools) == sorted(TOOL_NAMES)
