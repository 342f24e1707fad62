"""What an agent is told at a beat: the events that are pending, then what it is to do about them."""

from collections.abc import Iterable, Sequence

import msgspec

from heartbeat.kinds import BeatKind
from heartbeat.run_ports import PendingEvent

__all__ = ["CRON_PROMPT", "EVENT_PROMPT", "EXEC_PROMPT", "HEARTBEAT_PROMPT", "PromptTexts", "compose", "with_events"]

HEARTBEAT_PROMPT = """\
This is a heartbeat: nobody has written, it is merely time to look around. If there is a file HEARTBEAT.md in your
workspace, read it and follow it to the letter. Do not take up tasks of earlier conversations again, and do not guess
at new ones. When nothing needs attention, answer with HEARTBEAT_OK and nothing else; otherwise say what does."""

EXEC_PROMPT = """\
Work that was started earlier has ended, a command or a delegated task; its result is in the system lines above. Tell
the user what matters of it, in a few sentences: whether it succeeded, and what follows from that. When nobody needs to
know, answer with HEARTBEAT_OK and nothing else."""

CRON_PROMPT = """\
Scheduled tasks have fired; they are in the system lines above, each with its id. Do every one of them now, then report
what came of each. When all went well and nobody needs to know, answer with HEARTBEAT_OK and nothing else."""


EVENT_PROMPT = """\
Something has happened; it is in the system lines above, and nobody has written. Tell the user what matters of it, in a
few sentences. When nobody needs to know, answer with HEARTBEAT_OK and nothing else."""


class PromptTexts(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings put in place of the texts above; empty = the text above."""

    prompt: str = ""
    exec_prompt: str = ""
    cron_prompt: str = ""


def compose(events: Sequence[PendingEvent], kind: BeatKind, texts: PromptTexts, *, looks_around: bool = True) -> str:
    """The whole prompt of a beat. Where it is about commands and tasks both, it asks for both.

    ``kind`` is what the beat is about, ``BeatKind.of`` of the kinds of these events. ``looks_around``: the agent has
    heartbeats; one that has none is asked about what has happened only, not to look for more.
    """
    if not kind and events and not looks_around:
        return with_events(events, EVENT_PROMPT)
    if not kind:
        return with_events(events, texts.prompt.strip() or HEARTBEAT_PROMPT)
    return with_events(
        events,
        texts.exec_prompt.strip() or EXEC_PROMPT if BeatKind.EXEC in kind else "",
        texts.cron_prompt.strip() or CRON_PROMPT if BeatKind.CRON in kind else "",
    )


def with_events(events: Iterable[PendingEvent], *texts: str) -> str:
    """A prompt that tells the events first, a line ``[SYSTEM] text`` each, then what of the texts is not empty.

    An event of several lines becomes one: it cannot pass for two events.
    """
    lines = "\n".join(f"[SYSTEM] {' '.join(event.text.split())}" for event in events)
    return "\n\n".join(part for part in (lines, *texts) if part)
