"""A model of what pi does with its commands, taken from its recordings: enough to find what a dialect gets wrong."""

import json
from collections import deque
from typing import Any

from tests.rpc.pi.replay import state

Json = dict[str, Any]


class ModelPi:
    """Takes lines, and says lines whenever it is told to go on.

    ``heard`` are the texts that reached a model call, ``lost`` those that were accepted and never will.
    """

    def __init__(self, *, keeps_transcript: bool) -> None:
        self.inbox: deque[Json] = deque()
        self.said: deque[Json] = deque()
        self.streaming = False
        self.backing_off = False
        self.preflight: deque[Json] = deque()
        self.steering: list[str] = []
        self.follow_up: list[str] = []
        self.heard: list[str] = []
        self.lost: list[str] = []
        self.session = 0
        self._messages = 0
        self._keeps_transcript = keeps_transcript

    @property
    def is_quiet(self) -> bool:
        """Whether nothing more will come by itself."""
        return not (self.inbox or self.said or self.can_go_on)

    @property
    def can_go_on(self) -> bool:
        """Whether a run, a retry or a prompt is on its way."""
        return bool(self.streaming or self.backing_off or self.preflight)

    @property
    def queued(self) -> int:
        """Texts that wait."""
        return len(self.steering) + len(self.follow_up)

    def take(self, line: bytes) -> None:
        """A line on stdin."""
        self.inbox.append(json.loads(line))

    def work(self) -> None:
        """Work off one command."""
        command = self.inbox.popleft()
        getattr(self, f"_{command['type']}")(command)

    def go_on(self, *, fails: bool = False) -> None:
        """One step: accept a prompt and start, take a text from the queue, end, or fail and wait for a retry."""
        if self.preflight:
            self._accept(self.preflight.popleft())
        elif self.backing_off:
            self.backing_off = False
            self._start(None)
        elif self.streaming and self.queued:
            text = (self.steering or self.follow_up).pop(0)
            self._tell_queue()
            self._hear(text)
        elif self.streaming:
            self._end("error" if fails else "stop")
            if fails:
                self.backing_off = True
                self._say(type="auto_retry_start", attempt=1, maxAttempts=3, delayMs=1)

    # --- commands ---

    def _prompt(self, command: Json) -> None:
        text, behavior = command["message"], command.get("streamingBehavior")
        if self.streaming and behavior is None:
            self._answer(command, error="Agent is already processing. Specify streamingBehavior")
            return
        if self.streaming:
            (self.steering if behavior == "steer" else self.follow_up).append(text)
            self._tell_queue()
        else:
            self.preflight.append(command)  # extensions look at it first; other commands are worked off meanwhile
            return
        self._answer(command)

    def _accept(self, command: Json) -> None:
        """Two prompts at once are both accepted, and one is never heard of again; one in a wait replaces the retry."""
        self._answer(command)
        if self.streaming:
            self.lost.append(command["message"])
        else:
            self.backing_off = False
            self._start(command["message"])

    def _abort(self, command: Json) -> None:
        if self.backing_off:
            self.backing_off = False
            self._say(type="auto_retry_end", success=False, attempt=1, finalError="Retry cancelled")
        elif self.streaming:
            self._end("aborted")
        self._answer(command)

    def _get_state(self, command: Json) -> None:
        file = f"/s{self.session}.jsonl" if self._keeps_transcript else None
        known = {"sessionFile": file, "messageCount": self._messages, "isStreaming": self.streaming}
        self._answer(command, state(sessionId=f"s{self.session}", **known))

    def _new_session(self, command: Json) -> None:
        self.session += 1
        self._messages = 0
        self._replace(command)

    def _switch_session(self, command: Json) -> None:
        assert command["sessionPath"] == f"/s{self.session}.jsonl", "the dialect opens its own transcript only"
        self._replace(command)

    def _replace(self, command: Json) -> None:
        """The run, if any, is gone without a word."""
        self.streaming = self.backing_off = False
        self.steering, self.follow_up = [], []
        self._answer(command, {"cancelled": False})

    # --- words ---

    def _start(self, text: str | None) -> None:
        self.streaming = True
        self._say(type="agent_start")
        if text is not None:
            self._hear(text)

    def _hear(self, text: str) -> None:
        self.heard.append(text)
        self._messages += 1

    def _end(self, reason: str) -> None:
        message = {"role": "assistant", "content": [], "stopReason": reason}
        self.streaming = False
        self._messages += 1
        self._say(type="message_end", message=message)
        self._say(type="agent_end", messages=[])

    def _tell_queue(self) -> None:
        self._say(type="queue_update", steering=list(self.steering), followUp=list(self.follow_up))

    def _answer(self, command: Json, data: Json | None = None, *, error: str | None = None) -> None:
        answer = {"id": command["id"], "type": "response", "command": command["type"], "success": error is None}
        self._say(**answer, **({"error": error} if error else {"data": data} if data else {}))

    def _say(self, **line: Any) -> None:
        self.said.append(line)
