"""Parameters and results of native methods, where an ACP agent's differ from those of the native protocol."""

from typing import Annotated, Any

import msgspec

from rpc.acp.options import JournalFacts
from wire.messages import ContextSize, StateResult

_NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
_Absolute = Annotated[str, msgspec.Meta(pattern="^/[^\x00]+$")]


class AcpNoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For methods without parameters."""


class AcpNewSessionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``new_session``: the conversation it comes from, for the record, and MCP servers in the protocol's own words."""

    parent_session: str | None = None
    mcp_servers: list[dict[str, Any]] = []


class AcpSwitchSessionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``switch_session``: the transcript's path, what it says, and MCP servers in the protocol's own words.

    ``honest``: this version of the agent was seen to refuse an id that it does not have.
    """

    session_file: _Absolute
    journal: JournalFacts
    mcp_servers: list[dict[str, Any]] = []
    honest: bool = False


class AcpSetModelParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_model``: an id that the agent offers, or one with its provider before a slash."""

    model: _NonEmpty
    provider: str | None = None


class AcpSetThinkingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_thinking``: one of the agent's own levels."""

    level: _NonEmpty


class AcpSetModeParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_mode``: one of the agent's own modes."""

    mode: _NonEmpty


class AcpSetOptionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_option``: one of the agent's own options."""

    id: _NonEmpty
    value: str | bool


class AcpProbeParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``probe_resume``: random digits, of which an id is made that the agent cannot have."""

    nonce: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class AcpProbeResult(msgspec.Struct, frozen=True):
    """The answer to ``probe_resume``; ``honest`` None: the agent's answer says nothing of the id."""

    honest: bool | None


class AcpDescribeCallParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``describe_call``: what a call that waits for a person would do, from ``offset`` characters on."""

    call_id: str
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0


class AcpStateResult(StateResult, frozen=True, omit_defaults=True):
    """``get_state``: also the mode, the size of the context and how much of it is used, and why to retire the worker.

    ``tolerated``: lines of the agent that were passed over; ``message_count``: messages of turns that have ended.
    """

    mode: str | None = None
    context: ContextSize | None = None
    tolerated: int = 0
    retire_reason: str | None = None


class AcpCapabilities(msgspec.Struct, frozen=True):
    """``get_capabilities``: what the agent says of itself; ``options``: ids of what can be set in a conversation."""

    agent: str
    version: str
    load: bool
    resume: bool
    close: bool
    images: bool
    steering: bool
    options: list[str]
    modes: list[str]
    models: list[str]
    answers_ping: bool | None
