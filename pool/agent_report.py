"""What a worker's program says of itself and of its conversation, where its dialect knows that; for status. Pure."""

import msgspec

from rpc.client import RpcClient
from wire.messages import ContextSize, SessionResult

MAX_REPORTED_CHARS = 100
MAX_REPORTED_OPTIONS = 16


class AgentReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Texts of at most 100 characters, 16 options; absent: the program does not say it.

    ``capabilities``: what it can do. ``options``: ids of what can be set in a conversation. ``strategy``: how the
    worker went on with the session's conversation, as in ``agent_resumed``.
    """

    program: str = ""
    version: str = ""
    capabilities: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    strategy: str | None = None
    model: str | None = None
    mode: str | None = None
    context: ContextSize | None = None


def report_of(client: RpcClient, held: SessionResult | None) -> AgentReport | None:
    """What the program of this client says; ``held``: the conversation that it was given last.

    None before it is ready, and in dialects whose programs answer for themselves.
    """
    said, state = client.ready, client.dialect.conversation_facts
    if said is None or state is None:
        return None

    def shown(*texts: str) -> tuple[str, ...]:
        return tuple(client.mask.prefix(text, MAX_REPORTED_CHARS) for text in texts[:MAX_REPORTED_OPTIONS])

    program, version, model, mode = shown(said.agent, said.version, state.model or "", state.mode or "")
    return AgentReport(
        program=program,
        version=version,
        capabilities=shown(*(said.capabilities or ())),
        options=shown(*state.options),
        strategy=(held.strategy or None) if held else None,
        model=model or None,
        mode=mode or None,
        context=state.context,
    )
