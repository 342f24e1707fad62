"""What is written to pi: one struct per command, encoded here and nowhere else.

No byte of a client reaches pi unparsed: a line ``null`` kills it, and it takes wrong types in silence.
"""

from typing import Literal

import msgspec

from wire.messages import ImageContent

__all__ = [
    "THINKING_LEVELS",
    "Abort",
    "AbortBash",
    "Bash",
    "ClearQueue",
    "Command",
    "Compact",
    "GetCommands",
    "GetMessages",
    "GetState",
    "NewSession",
    "Prompt",
    "SetModel",
    "SetThinkingLevel",
    "SwitchSession",
    "ThinkingLevel",
    "UiResponse",
    "encode",
]

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
THINKING_LEVELS: tuple[ThinkingLevel, ...] = ("off", "minimal", "low", "medium", "high", "xhigh")


class Command(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="type", tag="command"
):
    """A line to pi; ``id`` comes back in its answer."""

    id: str = ""

    @property
    def type(self) -> str:
        """The command's name on the wire."""
        return str(self.__struct_config__.tag)


class Prompt(Command, frozen=True, tag="prompt"):
    """Start a run; with ``streaming_behavior`` join one that is on, or start one when it has just ended."""

    message: str
    images: list[ImageContent] = []
    streaming_behavior: Literal["steer", "followUp"] | None = None


class Abort(Command, frozen=True, tag="abort"):
    """End the run, or the wait before a retry."""


class AbortBash(Command, frozen=True, tag="abort_bash"):
    """End what ``bash`` started."""


class Bash(Command, frozen=True, tag="bash"):
    """Run a shell command for the user, outside any run; ignores pi's tool allow-list."""

    command: str


class ClearQueue(Command, frozen=True, tag="clear_queue"):
    """Drop the texts that wait for a run; releases before 0.84.4 do not know it."""


class Compact(Command, frozen=True, tag="compact"):
    """Summarise the conversation."""

    custom_instructions: str | None = None


class GetState(Command, frozen=True, tag="get_state"):
    """Answered at once, also in a run: pi's ping."""


class GetMessages(Command, frozen=True, tag="get_messages"):
    """The conversation."""


class GetCommands(Command, frozen=True, tag="get_commands"):
    """Extension commands, prompt templates, skills."""


class NewSession(Command, frozen=True, tag="new_session"):
    """A fresh conversation; kills a run without a word."""

    parent_session: str | None = None


class SwitchSession(Command, frozen=True, tag="switch_session"):
    """Another conversation; a path that is no transcript is answered ``success`` and overwritten."""

    session_path: str


class SetModel(Command, frozen=True, tag="set_model"):
    """Also written to the settings file of the agent dir."""

    provider: str
    model_id: str


class SetThinkingLevel(Command, frozen=True, tag="set_thinking_level"):
    """The same; a level that pi does not know is answered ``success`` and means ``off``."""

    level: ThinkingLevel


class UiResponse(Command, frozen=True, tag="extension_ui_response"):
    """A person's answer to a dialog; ``id`` is the dialog's. Never answered."""

    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool | None = None


_encode = msgspec.json.Encoder().encode


def encode(command: Command) -> bytes:
    """The command as one whole line."""
    return _encode(command) + b"\n"
