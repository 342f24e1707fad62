"""What an agent has said of itself in its answer to ``initialize``, and the words for a login that it wants. Pure."""

from typing import Any

import msgspec

from errors import WorkerRefused
from rpc.acp.messages import AUTH_REQUIRED, PROTOCOL_VERSION, object_of, objects_of, text_of
from rpc.acp.words import WANTS_LOGIN

_MAX_OFFERED = 20
_MAX_WORD, _MAX_TEXT = 200, 2_000
"""Characters of a name and of a description; the agent has written both."""


class AuthMethod(msgspec.Struct, frozen=True):
    """A login that the agent offers. ``type``: agent (it can be asked for it), terminal, env_var or another."""

    id: str
    type: str = "agent"
    description: str = ""
    args: tuple[str, ...] = ()


class AcpAgentRecord(msgspec.Struct, frozen=True):
    """Name, version and abilities. ``embedded``: it takes resources in prompts."""

    agent: str = ""
    version: str = ""
    load: bool = False
    resume: bool = False
    close: bool = False
    images: bool = False
    embedded: bool = False
    steering: bool = False
    auth_methods: tuple[AuthMethod, ...] = ()

    @property
    def abilities(self) -> list[str]:
        """The names of what it can do."""
        return [name for name in _ABILITIES if getattr(self, name)]


_ABILITIES = ("load", "resume", "close", "images", "embedded", "steering")


def read_record(result: dict[str, Any]) -> AcpAgentRecord:
    """The record in an answer to ``initialize``."""
    info, abilities = object_of(result.get("agentInfo")), object_of(result.get("agentCapabilities"))
    sessions, prompts = object_of(abilities.get("sessionCapabilities")), object_of(abilities.get("promptCapabilities"))
    steering = object_of(object_of(result.get("_meta")).get("steering"))
    return AcpAgentRecord(
        agent=_word(info.get("name")),
        version=_word(info.get("version")),
        load=abilities.get("loadSession") is True,
        resume=isinstance(sessions.get("resume"), dict),
        close=isinstance(sessions.get("close"), dict),
        images=prompts.get("image") is True,
        embedded=prompts.get("embeddedContext") is True,
        steering=steering.get("supported") is True,
        auth_methods=tuple(map(_read_method, objects_of(result.get("authMethods"))[:_MAX_OFFERED])),
    )


def _read_method(method: dict[str, Any]) -> AuthMethod:
    args = method.get("args")
    return AuthMethod(
        id=_word(method.get("id")),
        type=_word(method.get("type")) or "agent",
        description=(text_of(method.get("description")) or text_of(method.get("name")) or "")[:_MAX_TEXT],
        args=tuple(filter(None, map(_word, args[:_MAX_OFFERED]))) if isinstance(args, list) else (),
    )


def _word(value: object) -> str:
    return (text_of(value) or "")[:_MAX_WORD]


def version_problem(name: str, result: dict[str, Any]) -> str | None:
    """What is wrong with the protocol version that the agent has answered."""
    version = result.get("protocolVersion")
    if version == PROTOCOL_VERSION and not isinstance(version, bool):
        return None
    return f"{name} speaks version {version!r} of the Agent Client Protocol, this supervisor {PROTOCOL_VERSION}"


def wants_login(error: WorkerRefused) -> bool:
    """Whether the agent refuses for want of a login."""
    return error.details.get("agent_code") == AUTH_REQUIRED or "authenticat" in error.message.lower()


def login_message(name: str, methods: tuple[AuthMethod, ...], said: str) -> str:
    """What to do about it, in a sentence."""
    terminal = next((method for method in methods if method.type == "terminal"), None)
    how = "its own login" if terminal is None else " ".join(("it with", *terminal.args))
    hint = next((method.description for method in methods if "`" in method.description), "")
    offered = ", ".join(method.id for method in methods if method.id) or "nothing"
    words = f"{name} {WANTS_LOGIN}: run {how} in a terminal" + (f" ({hint})" if hint else "")
    return f"{words}, or set auth_method; offered: {offered}" + (f"; it said: {said}" if said else "")
