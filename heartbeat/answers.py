"""Beat prompts, and the classification of their answers by HEARTBEAT_OK. Pure.

The token counts at both ends of an answer, also in markup; in the middle it is an ordinary word. The rest keeps its own
markup. Classification takes linear time.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Flag
from typing import Self, TypeAlias

import msgspec

from heartbeat.settings import HeartbeatSettings
from heartbeat.system_events import RESULT_KINDS, SystemEvent


class BeatKind(Flag):
    """A beat may be about ended work and scheduled tasks at once; about neither it is a plain heartbeat."""

    PLAIN = 0
    EXEC = 1
    """A background command or a delegated task has ended."""
    CRON = 2
    """A scheduled task has fired."""

    @classmethod
    def of(cls, kinds: Iterable[str]) -> Self:
        """From the kinds of the pending system events; those without a prompt of their own add nothing."""
        names = set(kinds)
        found = cls.PLAIN
        if not names.isdisjoint(RESULT_KINDS):
            found |= cls.EXEC
        if "cron" in names:
            found |= cls.CRON
        return found


HEARTBEAT_OK = "HEARTBEAT_OK"

_MEDIA = "MEDIA:"
_LONGEST_OPENING = 64

# A tag has a name, and attributes only where there is a "=": "<disk is full>" is something the agent says. Where
# something else could take the same characters, a repetition gives nothing back, so that nothing is tried twice: of one
# character it is possessive (++, *+, {}+), of a group it stands in an atomic group (?>...), since before Python 3.11.5
# a possessive repetition of a group that can be matched in several ways matches what it should not.
_NAME = r"[A-Za-z][A-Za-z0-9-]{0,30}+"
_TAG = rf"</?{_NAME}(?:\s[^<>=]{{0,200}}+=[^<>]{{0,200}}+)?\s?/?>"
_SPACE = r"(?:\s++|&(?i:nbsp);)"
_EDGE = rf"(?>(?:{_SPACE}|[*`~_]++|{_TAG})*)"
_CLOSING = rf"(?>(?:[*`~_]++|</{_NAME}\s?>|<(?i:br)\s?/?>)*)"
_OPENERS = r"(\[{\"'\u201c\u2018\u00ab\uff08"
_CLOSERS = r")\]}\"'\u201d\u2019\u00bb\uff09"
_PUNCTUATION = rf"(?>(?:[)\]}}\"']|[^\w\s*`~<&$#@/+\\{_OPENERS}-]){{0,4}})"
_TOKEN = rf"{HEARTBEAT_OK}(?!_*+(?!{HEARTBEAT_OK})[A-Za-z0-9])"

_AT_START = re.compile(rf"(?>(?:{_EDGE}{_TOKEN}{_CLOSING}{_PUNCTUATION}{_CLOSING}(?>{_SPACE}*))*)")
_TRAILING_MARKUP = re.compile(rf"{_EDGE}(?>(?:[^\w\s*`~]{_EDGE}){{0,4}})")
_WORD_END = re.compile(r"[A-Za-z0-9]_{0,3}\Z")
_MARKUP_PAIRS = (
    (re.compile(r"\s*+(?:`{3}|~{3})"), re.compile(r"(?:`{3,}|~{3,})[\w+-]{0,20}\s{1,2}\Z")),
    (re.compile(rf"[*`~_{_CLOSERS}]|</"), re.compile(rf"(?:[*`~_{_OPENERS}]|<{_NAME}>)++\Z")),
)
"""Markup that closes right after the token, and how it was opened right before it."""


class SilentAnswer(msgspec.Struct, frozen=True):
    """Nothing to report. ``remainder``: text beside the token, for diagnosis."""

    remainder: str = ""


class AlertAnswer(msgspec.Struct, frozen=True):
    """An alert to deliver. ``has_media``: files belong to it, so it is delivered even if its text is a repeated one."""

    text: str
    has_media: bool = False


ClassifiedAnswer: TypeAlias = SilentAnswer | AlertAnswer


def classify_answer(
    text: str,
    *,
    kind: BeatKind,
    ack_max_chars: int,
    has_media: bool = False,
    exec_always_deliver: bool = False,
    summary: str = "",
) -> ClassifiedAnswer:
    """Whether an answer is delivered, and which part of it.

    Args:
        text: the answer, as the agent gave it.
        kind: what the beat was about.
        ack_max_chars: this many characters beside the token are no alert; a scheduled task's report always is one.
        has_media: files have been taken out of the answer already. Files are always delivered.
        exec_always_deliver: of a beat about ended work deliver what stands beside the token, or the ``summary``.
        summary: what the beat's events say of the ended work.
    """
    rest, is_acknowledged = strip_token(text)
    is_exec_delivered = exec_always_deliver and BeatKind.EXEC in kind
    if has_media or _has_media_line(rest):
        return AlertAnswer(rest, has_media=True)
    if not rest or (is_acknowledged and _TRAILING_MARKUP.fullmatch(rest)):
        return AlertAnswer(summary.strip()) if is_exec_delivered and summary.strip() else SilentAnswer(rest)
    is_silent = is_acknowledged and len(rest) <= ack_max_chars and BeatKind.CRON not in kind and not is_exec_delivered
    return SilentAnswer(rest) if is_silent else AlertAnswer(rest)


def strip_token(text: str) -> tuple[str, bool]:
    """Take the token off both ends, as often as it stands there; the rest, trimmed, and whether there was one.

    Punctuation that follows the token (up to four marks) and the markup around it go with it.
    """
    if HEARTBEAT_OK not in text:
        return text.strip(), False
    found = _AT_START.match(text)
    start = found.end() if found else 0
    end = _strip_end(text, start)
    return text[start:end].strip(), (start, end) != (0, len(text))


def _strip_end(text: str, start: int) -> int:
    end = len(text)
    while (at := text.rfind(HEARTBEAT_OK, start, end)) >= 0:
        tail = at + len(HEARTBEAT_OK)
        if not _TRAILING_MARKUP.fullmatch(text, tail, end) or _is_within_a_word(text, at):
            break
        end = _before_opening(text, start, at, tail)
    return end


def _is_within_a_word(text: str, at: int) -> bool:
    if not at or not (text[at - 1].isalnum() or text[at - 1] == "_"):
        return False
    before = text[max(0, at - len(HEARTBEAT_OK) - 3) : at]
    return bool(_WORD_END.search(before)) and not before.rstrip("_").endswith(HEARTBEAT_OK)


def _before_opening(text: str, start: int, at: int, tail: int) -> int:
    """Where the markup begins that is closed right after the token: without the token it would stay open."""
    first = max(start, at - _LONGEST_OPENING)
    for closes, opening in _MARKUP_PAIRS:
        if closes.match(text, tail) and (found := opening.search(text[first:at])):
            return first + found.start()
    return at


def _has_media_line(text: str) -> bool:
    lines = map(str.strip, text.split("\n")) if _MEDIA in text else ()
    return any(line.startswith(_MEDIA) and line != _MEDIA for line in lines)


HEARTBEAT_PROMPT = """\
This is a heartbeat: it is time to look around; no message has come in. If there is a file HEARTBEAT.md in your
workspace, read it and follow it to the letter. Do not take up tasks of earlier conversations again, and do not guess
at new ones. When nothing needs attention, answer with HEARTBEAT_OK and nothing else; otherwise say what does."""

EXEC_PROMPT = """\
Work that was started earlier has ended, a command or a delegated task; its result is in the system lines above. Tell
the user what matters of it, in a few sentences: whether it succeeded, and what follows from that. When there is nothing
to report, answer with HEARTBEAT_OK and nothing else."""

CRON_PROMPT = """\
Scheduled tasks have fired; they are in the system lines above, each with its id. Do every one of them now, then report
what came of each. When all went well and there is nothing to report, answer with HEARTBEAT_OK and nothing else."""


EVENT_PROMPT = """\
Something has happened; it is in the system lines above; no message has come in. Tell the user what matters of it, in a
few sentences. When there is nothing to report, answer with HEARTBEAT_OK and nothing else."""


def compose_prompt(
    events: Sequence[SystemEvent], kind: BeatKind, settings: HeartbeatSettings, *, looks_around: bool = True
) -> str:
    """The whole prompt of a beat. Where it is about commands and tasks both, it asks for both.

    ``kind`` is what the beat is about, ``BeatKind.of`` of the kinds of these events. ``looks_around``: the agent has
    heartbeats; one that has none is asked about what has happened only, not to look for more.
    """
    if not kind and events and not looks_around:
        return with_events(events, EVENT_PROMPT)
    if not kind:
        return with_events(events, settings.prompt.strip() or HEARTBEAT_PROMPT)
    return with_events(
        events,
        settings.exec_prompt.strip() or EXEC_PROMPT if BeatKind.EXEC in kind else "",
        settings.cron_prompt.strip() or CRON_PROMPT if BeatKind.CRON in kind else "",
    )


def with_events(events: Iterable[SystemEvent], *texts: str) -> str:
    """A prompt with the events first, a line ``[SYSTEM] text`` each, then what of the texts is not empty.

    An event of several lines becomes one: it cannot pass for two events.
    """
    lines = "\n".join(f"[SYSTEM] {' '.join(event.text.split())}" for event in events)
    return "\n\n".join(part for part in (lines, *texts) if part)
