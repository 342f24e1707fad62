"""What the gateway adds to every agent's system prompt: the conventions by which it reads their answers."""

from collections.abc import Iterable

import msgspec

from gateway.media import MEDIA_TYPES

__all__ = ["GatewayPrompts", "build_gateway_prompt"]


class GatewayPrompts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[agents.gateway_prompts]``: which conventions are explained to agents."""

    heartbeat: bool | None = None
    """What wakes an agent that nobody has written to, and how it says that all is well; unset = to those whose
    heartbeat is on (``every``)."""
    cron: bool | None = None
    """Scheduled tasks; unset = to agents that have some in these settings, or whose heartbeat is on."""
    media: bool = True
    """How an answer hands over files; the lines that do are read in any case."""


_HEARTBEAT = """\
## Heartbeats

From time to time you are woken by a heartbeat: a message that no person has written. If the workspace holds a file
HEARTBEAT.md, read it and do what it asks, no more; do not take up again what earlier conversation has settled.
- Nothing needs anybody's attention: answer with HEARTBEAT_OK alone. That word at the beginning or the end of an answer
  means "all is well", and the answer is shown to nobody.
- Something does: say what it is, in a few sentences and without HEARTBEAT_OK. It is delivered as an alert."""

_CRON = """\
## Scheduled tasks

A line that begins with [SYSTEM] [CRON:id] says that the scheduled task of that id is due; its text follows. Do every
task that is listed, then report what came of each, by its id. When all went well and nobody needs to know, answer
HEARTBEAT_OK instead. The schedule is kept for you: do not wait, and do not set timers of your own."""

_MEDIA = """\
## Files in answers

To hand over a file with your answer, put this on a line of its own, once for each file:
MEDIA:path/to/file
The path is relative to the workspace, lies inside it, and names a file that exists when you answer; absolute paths, ..
and URLs are not followed. The line is taken out of the text, and the file is sent beside it.
Types that can be sent: {types}."""


def build_gateway_prompt(prompts: GatewayPrompts, *, is_woken: bool = False, has_tasks: bool = False) -> str | None:
    """The sections that are wanted, a blank line between them; None when none is. The same text for the same input.

    ``is_woken``: the agent's heartbeat is on; ``has_tasks``: tasks are scheduled for it.

    The text is part of what a worker is started with, so it names nothing that changes from session to session.
    """
    sections = (
        (is_woken if prompts.heartbeat is None else prompts.heartbeat, _HEARTBEAT),
        (is_woken or has_tasks if prompts.cron is None else prompts.cron, _CRON),
        (prompts.media, _MEDIA.format(types=_listed(MEDIA_TYPES))),
    )
    return "\n\n".join(text for is_wanted, text in sections if is_wanted) or None


def _listed(suffixes: Iterable[str]) -> str:
    return ", ".join(suffix.removeprefix(".") for suffix in suffixes)
