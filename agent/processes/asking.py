"""What may be asked about a command in the background, by a model (the tool ``process``) and by a supervisor alike."""

from typing import Annotated, Literal, TypeAlias

import msgspec

__all__ = ["INPUT_ACTIONS", "Action", "ProcessInput"]

Action: TypeAlias = Literal["list", "poll", "log", "write", "submit", "send_keys", "paste", "kill", "clear", "remove"]

INPUT_ACTIONS: frozenset[Action] = frozenset({"write", "submit", "send_keys", "paste"})
"""Actions that give a command input, which a shell executes."""

_MAX_DATA = 1_000_000
_MAX_KEYS = 1_000

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Data: TypeAlias = Annotated[str, msgspec.Meta(max_length=_MAX_DATA)]


class ProcessInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``session_id``: for all actions but list, and clear of everything that has ended.

    ``timeout``: seconds that poll waits for the end, at most 30. ``offset`` and ``limit``: lines that log passes over
    and shows; without both, the last 200. ``data`` and ``eof``: for write (as it is), submit (and Enter) and paste.
    ``keys``: for send_keys.
    """

    action: Action
    session_id: str | None = None
    timeout: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    offset: _Count | None = None
    limit: _Count | None = None
    data: _Data = ""
    eof: bool = False
    keys: Annotated[list[str], msgspec.Meta(max_length=_MAX_KEYS)] = []

    @property
    def is_for_all(self) -> bool:
        """Whether it is about all commands, and not about one of them."""
        return self.action == "list" or (self.action == "clear" and self.session_id is None)
