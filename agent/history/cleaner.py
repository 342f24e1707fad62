"""Cleaning a conversation that grows, without looking again at what was cleaned before a few words were added."""

from collections.abc import Sequence

from agent.history.estimate import tokens_of
from agent.history.hygiene import Rules, clean, marked
from wire.entries import TextBlock, TranscriptMessage

__all__ = ["Cleaner"]


class Cleaner:
    """``clean`` with a memory of the last call: of what was there before only references are compared and copied.

    Text can be added to what was cleaned as it is: it belongs to no call and takes no image's place. Results, calls and
    images, and rules that count turns or join neighbours, concern older messages too: all is cleaned anew.
    """

    def __init__(self) -> None:
        self._rules = Rules()
        self._seen: list[TranscriptMessage] = []
        self._cleaned: list[TranscriptMessage] = []
        self._tokens = 0

    def clean(self, messages: Sequence[TranscriptMessage], rules: Rules) -> tuple[list[TranscriptMessage], int]:
        """What ``clean`` makes of the messages, and how many tokens that is, about."""
        old = len(self._seen)
        added = messages[old:]
        if rules == self._rules and _is_local(rules) and all(map(_is_text, added)) and messages[:old] == self._seen:
            more = [message for message in map(marked, added) if message.content]
            self._cleaned += more
            self._tokens += tokens_of(more)
            self._seen += added
        else:
            self._cleaned = clean(messages, rules)
            self._tokens = tokens_of(self._cleaned)
            self._seen = [*messages]
            self._rules = rules
        return [*self._cleaned], self._tokens


def _is_local(rules: Rules) -> bool:
    return rules.turns is None and not rules.alternate


def _is_text(message: TranscriptMessage) -> bool:
    return all(isinstance(block, TextBlock) for block in message.content)
