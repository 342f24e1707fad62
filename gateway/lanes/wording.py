"""What a model reads when messages were merged or cut down, and what a caller reads whose message was refused.

Our own words stand in square brackets, so that a model can tell them from what people wrote.
"""

from collections.abc import Sequence

from gateway.lanes.actions import RefusalReason

__all__ = ["compose", "refusal", "summary_line"]

LINE_LENGTH = 160
"""Characters that are left of a summarized message."""
MOST_LINES = 20
"""Summarized messages that a prompt shows; of more, the latest."""


def summary_line(text: str) -> str:
    """The beginning of a message as one line of at most 160 characters."""
    line = " ".join(text.split(maxsplit=LINE_LENGTH)) or "(no text)"  # so many words fill the line, whatever follows
    return line if len(line) <= LINE_LENGTH else line[: LINE_LENGTH - 1].rstrip() + "…"


def compose(texts: Sequence[str], lines: Sequence[str]) -> str:
    """One prompt out of whole messages and the lines of summarized ones, both oldest first.

    A single message with no lines is the prompt as it is.
    """
    if len(texts) == 1 and not lines:
        return texts[0]
    parts = [_heading(len(texts), len(lines))]
    if lines:
        parts.append(_shortened(lines))
    if len(texts) == 1:
        parts.append(f"[In full]\n{texts[0]}")
    else:
        parts += [f"[{number} of {len(texts)}]\n{text}" for number, text in enumerate(texts, 1)]
    return "\n\n".join(parts)


def _heading(whole: int, dropped: int) -> str:
    came = "1 message" if whole + dropped == 1 else f"{whole + dropped} messages"
    came = f"{came} came in while you were busy"
    read = "Read everything before you act: a later message may correct or take back an earlier one."
    if not dropped:
        return f"[{came}, in this order. {read}]"
    if not whole:
        return (
            f"[{came} and had to be dropped, because too many waited. Only the first words are left; "
            "do what can be done from them, and ask for what is missing.]"
        )
    cut = (
        "1 was dropped but for its first words" if dropped == 1 else f"{dropped} were dropped but for their first words"
    )
    kept = "1 follows in full" if whole == 1 else f"{whole} follow in full"
    return f"[{came}, too many to keep: {cut}, {kept}. {read}]"


def _shortened(lines: Sequence[str]) -> str:
    shown = [f"- {line}" for line in lines[-MOST_LINES:]]
    more = len(lines) - len(shown)
    if more:
        shown.append(f"and {more} more, older than these")
    return "\n".join([f"[Dropped: {len(lines)}]", *shown])


def refusal(reason: RefusalReason, session: str, *, cap: int, pending: int) -> str:
    """Why a run of ``session`` ends without a turn, in a sentence for its caller."""
    match reason:
        case RefusalReason.FULL:
            return (
                f"session {session} has {cap} messages waiting already (gateway.queue.cap); "
                "wait until one has been answered, or abort the running turn"
            )
        case RefusalReason.DROPPED:
            return f"too many newer messages wait in session {session} (gateway.queue.cap); this one gave way to them"
        case RefusalReason.EVICTED:
            return (
                f"{pending} messages wait in all (gateway.queue.pending), and of the least important ones this was "
                "the latest; try again later"
            )
        case RefusalReason.INTERRUPTED:
            return f"a newer message interrupted session {session} and took this one's place"
        case RefusalReason.CLEARED:
            return f"the waiting messages of session {session} were cleared"
