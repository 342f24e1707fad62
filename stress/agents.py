"""The agents of a run, and what faulty ones are asked for: the bundled agent, or a fake one that speaks ACP. Pure."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from stress.faulty_agent import COMMAND, fault_word

AgentsName = Literal["native", "acp"]
_KIB, _MIB = 1024, 1024 * 1024


class AgentKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of agents. ``good`` and ``faulty``: agent definitions of the settings file.

    ``invalid`` and ``unending``: what a prompt to a faulty one may begin with, for it to write invalid output, or to be
    hard to end.
    """

    description: str
    good: Mapping[str, Any]
    faulty: Mapping[str, Any]
    invalid: tuple[str, ...]
    unending: tuple[str, ...]


_ACP_AGENT: Mapping[str, Any] = {
    "dialect": "acp",
    # Its store is a folder of the agent's workspace. It recalls the conversation in each turn: what is mixed up shows.
    "command": [
        *(sys.executable, "-S", str(Path(__file__).parent / "acp_agent")),
        *("--store", "conversations", "--quirk", "recalls", "--lifetime", "0"),
    ],
}

AGENTS: Mapping[AgentsName, AgentKind] = {
    "native": AgentKind(
        description="the bundled agent with its scripted model",
        good={},
        faulty={"command": list(COMMAND)},
        invalid=(
            *(fault_word("garbage"), fault_word("garbage", 500), fault_word("bad-utf8"), fault_word("one-byte")),
            *(fault_word("half-line-stall"), fault_word("half-line-eof"), fault_word("half-line-exit")),
            *(fault_word("line", size) for size in (64 * _KIB - 1, 64 * _KIB, 64 * _KIB + 1, 16 * _MIB)),
            *(fault_word("endless-line"), fault_word("duplicate"), fault_word("unknown-id")),
            *(fault_word("late-id"), fault_word("late-answer")),
        ),
        unending=tuple(fault_word(name) for name in ("close-stdin", "close-stdout", "no-end", "heir", "daemon")),
    ),
    "acp": AgentKind(
        description="agents that speak ACP: a fake one, which needs no model and no login",
        good=_ACP_AGENT,
        faulty=_ACP_AGENT,
        invalid=(
            *("POLLUTE:no message;ECHO:", "BADUTF8;ECHO:", "HALF;STALL;ECHO:", "HALF;EXIT=7;ECHO:", "LINE=65536;ECHO:"),
            *("BADTYPES;ECHO:", "STRAY=50;ECHO:", "EXTRA;ECHO:", "QUIRK:answers-twice;ECHO:"),
            *("QUIRK:unknown-ids;ECHO:", "LATE:said too late;ECHO:", "ERROR=-32000:no;ECHO:", "STALL;ECHO:"),
        ),
        unending=(
            *("QUIRK:ignores-eof;ECHO:", "QUIRK:ignores-term;ECHO:", "SETSID:sleep 300;ECHO:"),
            *("SPAWN:sleep 300;ECHO:", "QUIRK:cancel-deaf;ECHO:", "EXIT=-9;ECHO:"),
        ),
    ),
}
