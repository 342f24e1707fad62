"""What can be set in a session, and is: its model and how hard that thinks."""

import msgspec

from gateway.sessions.session_entry import SessionEntry
from pool.agent_records import ProgramRecord
from profiles.dialects import THINKING_LEVELS
from profiles.settings import AgentSettings


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``model`` and ``thinking``: the session's own; None: as its agent's definition says.

    ``models``, ``thinking_levels``: what can be chosen, the usual levels where its agent has not said. ``any_model``:
    its agent has not said which models there are, and another name may be one.
    """

    model: str | None
    thinking: str | None
    models: list[str]
    any_model: bool
    thinking_levels: list[str]


def session_options(entry: SessionEntry, definition: AgentSettings, seen: ProgramRecord | None) -> SessionOptions:
    """The options of a session, by what is ``seen`` of its agent's program; else what the settings name."""
    offered = None if seen is None else seen.models
    levels = None if seen is None else seen.thinking_levels
    named = [name for name in (definition.model, entry.model) if name is not None]
    return SessionOptions(
        model=entry.model,
        thinking=entry.thinking,
        models=list(dict.fromkeys(named if offered is None else offered)),
        any_model=offered is None,
        thinking_levels=list(THINKING_LEVELS if levels is None else levels),
    )
