"""What a worker is sent for a turn, beside its text: images, tools of the client, how much of the past counts. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.run import RunRequest
from router.source import MessageSource
from wire.messages import PromptParams

__all__ = ["history_turns", "prompt_params"]


def prompt_params(text: str, requests: Sequence[RunRequest], turns: int | None) -> PromptParams:
    """The parameters of a turn that answers ``requests``; ``turns``: see ``history_turns``.

    Several requests are texts and images only: what has more (``RunRequest.is_plain``) has its turn for itself.
    """
    return PromptParams(
        text,
        [image for request in requests for image in request.images],
        client_tools=[msgspec.to_builtins(tool) for request in requests for tool in request.client_tools],
        tool_results=[msgspec.to_builtins(result) for request in requests for result in request.tool_results],
        history_turns=turns,
        from_session=requests[0].from_session,
        answer=requests[0].answer,
    )


def history_turns(of_agent: int | None, dm_limits: Mapping[str, int], source: MessageSource | None) -> int | None:
    """How many user messages the model is shown; None = all.

    What is set for direct messages of the channel comes before what is set for the agent.
    """
    if source is not None and source.chat_type == "dm":
        return dm_limits.get(source.channel, of_agent)
    return of_agent
