"""What the dialect of an ACP agent is given at its start, and with each conversation that it is to go on with."""

import hashlib
import re
from typing import Any, Literal

import msgspec

PermissionMode = Literal["approval", "auto", "readonly"]

_SAFE_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


class AcpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the agent's definition and of the profile.

    Attributes:
        cwd: the working directory of every conversation, absolute.
        journal_dir: where the transcripts lie.
        permission_mode: what happens to the agent's questions: a person answers, or each is allowed once, or only
            those of reading tools are.
        mode: the agent's own mode; like ``model``, ``thinking`` and ``options`` it is set in every conversation.
        auth_method: id of the login to try where the agent asks for one.
        mcp_servers: in the protocol's own words.
        agent: the definition's name.
        instructions: what every new conversation begins with, before the first prompt's text.
    """

    cwd: str
    journal_dir: str
    permission_mode: PermissionMode = "approval"
    mode: str | None = None
    model: str | None = None
    thinking: str | None = None
    options: dict[str, str | bool] = {}
    auth_method: str | None = None
    mcp_servers: list[dict[str, Any]] = []
    agent: str = ""
    client_version: str = ""
    instructions: str = ""


class JournalFacts(msgspec.Struct, frozen=True):
    """What the transcript of a conversation says.

    ``turns``: how many have ended. ``tail``: its end as text, each message after a line ``user:`` or ``assistant:``.
    ``closed_cleanly``: the last process that held it has closed it, or ended in order when its stdin was closed.
    """

    agent_session: str = ""
    cwd: str = ""
    turns: int = 0
    last_user_text: str = ""
    tail: str = ""
    closed_cleanly: bool = False


def journal_id(session: str) -> str:
    """The name of a conversation's transcript: the agent's id where that is a safe file name, else its hash."""
    if _SAFE_ID.fullmatch(session):
        return session
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
