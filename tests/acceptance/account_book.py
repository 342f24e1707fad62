"""What was sent, what was promised, what came of it: the books that a front end keeps about its messages. Pure."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Envelope = dict[str, Any]
Modes = Sequence[str | None]
_NONCE = re.compile(r"\bn[0-9]{5}x[0-9a-f]{6}\b")
_CHANNELS = ("telegram", "discord", "slack", "signal")
EVERY_MODE = (*(None, "steer", "followup", "collect") * 10, "interrupt")


class Message:
    """One message of one sender, and everything that was heard of it."""

    def __init__(self, number: int, sender: int, rng: random.Random, modes: Modes) -> None:
        self.nonce = f"n{number:05}x{rng.getrandbits(24):06x}"
        self.key = f"key-{self.nonce}"
        self.sender = sender
        self.text = f"{'DELAY=40 ' if rng.random() < 0.1 else ''}ECHO:{self.nonce}"
        self.mode = rng.choice(modes)
        self.priority = rng.randint(1, 9)
        self.session: str | None = None
        self.sent = 0
        self.refusals: list[str] = []
        self.accepted: list[Envelope] = []
        self.starts: list[Envelope] = []
        self.outcomes: list[Envelope] = []

    def params(self) -> dict[str, Any]:
        """As the method ``agent`` takes it."""
        params = {"run": self.key, "text": self.text, "source": _source(self.sender), "priority": self.priority}
        return params if self.mode is None else {**params, "queue": self.mode}

    def is_over(self) -> bool:
        """Whether it was refused, or has its outcome."""
        return bool(self.refusals or self.outcomes)

    @property
    def fate(self) -> str:
        """What became of it, in a word; ``?`` = nobody knows."""
        if self.refusals:
            return f"refused: {self.refusals[-1]}"
        if len(self.outcomes) != 1:
            return "?"
        done = self.outcomes[0]["data"]
        if done["reason"] == "completed":
            return "completed" if self.is_leader else "completed in another's turn"
        return f"{done['reason']}: {done['error']['code']}"

    @property
    def is_leader(self) -> bool:
        """Whether its turn was named after it."""
        return bool(self.starts) and self.starts[0]["data"]["leader"] == self.key


def nonces_in(text: str) -> list[str]:
    """Every nonce that stands in a text, as often as it stands there."""
    return _NONCE.findall(text)


def _source(sender: int) -> dict[str, str]:
    """Direct messages, groups and threads, on several channels."""
    chat_type = ("dm", "group", "thread")[sender % 3]
    source = {"chat_type": chat_type, "chat_id": f"c{sender}", "sender_id": f"p{sender}"}
    thread = {"thread_id": f"t{sender}"} if chat_type == "thread" else {}
    return {"channel": _CHANNELS[sender % len(_CHANNELS)], **source, **thread}


class Book:
    """All messages by key and nonce; ``problems`` are sentences. ``on_progress`` is called after each step."""

    def __init__(self, messages: Iterable[Message], on_progress: Callable[[], None]) -> None:
        self.messages: dict[str, Message] = {}
        self.by_nonce: dict[str, Message] = {}
        self.open: set[Message] = set()
        """Messages that are not over."""
        self.problems: list[str] = []
        self.bookmark = 0
        self.seen: set[int] = set()
        self._on_progress = on_progress
        self._sessions: dict[str, int] = {}
        for message in messages:
            self.messages[message.key] = self.by_nonce[message.nonce] = message
            self.open.add(message)

    def is_complete(self) -> bool:
        """Whether every message has been refused or has an outcome."""
        return not self.open

    # --- answers to requests ----------------------------------------------------------------------------------------

    def accept(self, message: Message, answer: dict[str, Any]) -> None:
        """The supervisor has said that it will run this message."""
        self._claim(message, answer["session"])
        if (answer["run_id"], answer["status"]) != (message.key, "accepted"):
            self.problems.append(f"{message.key} was answered with {answer}")
        self._on_progress()

    def refuse(self, message: Message, code: str) -> None:
        """The supervisor has said that it will not."""
        message.refusals.append(code)
        self.open.discard(message)
        self._on_progress()

    # --- the stream of events -----------------------------------------------------------------------------------------

    def hear(self, event: Envelope) -> None:
        """Take in the next event of the stream, whatever the connection."""
        self._follow_order(event)
        self._look_for_strangers(event)
        message = self.messages.get(event.get("run_id", ""))
        if message is None or event["channel"] != "progress":
            return
        match event["type"]:
            case "run:accepted":
                message.accepted.append(event)
                self._claim(message, event["session"])
            case "run:start":
                message.starts.append(event)
            case "done":
                message.outcomes.append(event)
                self.open.discard(message)
                self._on_progress()

    def _follow_order(self, event: Envelope) -> None:
        first = seq = event["seq"]
        if event["type"].endswith("_snapshot"):
            first = event["data"]["from_seq"]
        if first <= self.bookmark:
            self.problems.append(f"seq {first} came after {self.bookmark}: {event}")
        self.bookmark = max(self.bookmark, seq)
        self.seen.add(seq)

    def _look_for_strangers(self, event: Envelope) -> None:
        for nonce in nonces_in(repr(event)):
            message = self.by_nonce.get(nonce)
            if message is None or message.session not in (None, event["session"]):
                self.problems.append(f"{nonce} turned up in session {event['session']}: {event}")

    def _claim(self, message: Message, session: str) -> None:
        """A sender's messages make one session, and no other sender's do."""
        message.session = message.session or session
        if message.session != session or self._sessions.setdefault(session, message.sender) != message.sender:
            self.problems.append(f"{message.key} of sender {message.sender} went to {session}")

    # --- the account ------------------------------------------------------------------------------------------------

    def fates(self) -> Counter[str]:
        """How many messages came to which end."""
        return Counter(message.fate for message in self.messages.values())

    def audit(self) -> list[str]:
        """Everything that is wrong with what was heard."""
        return self.problems + [wrong for message in self.messages.values() for wrong in _wrongs(message)]


def _wrongs(message: Message) -> list[str]:
    steps = (len(message.accepted), len(message.starts), len(message.outcomes))
    if message.refusals:
        return [] if steps == (0, 0, 0) else [f"{message.key} was refused and yet: {steps}"]
    wrongs = []
    if (steps[0], steps[2]) != (1, 1) or steps[1] > 1:
        wrongs.append(f"{message.key} was accepted, started, ended {steps} times: {message.outcomes}")
        return wrongs
    order = [event["seq"] for event in (*message.accepted, *message.starts, *message.outcomes)]
    if order != sorted(order):
        wrongs.append(f"{message.key} went through its steps in the order {order}")
    done = message.outcomes[0]["data"]
    if done["reason"] == "completed" and not message.starts:
        wrongs.append(f"{message.key} was completed without having been started")
    if message.fate == "completed" and message.nonce not in done["text"]:
        wrongs.append(f"{message.key} was answered with {done['text']!r}")
    return wrongs
