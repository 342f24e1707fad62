"""Parameters of the methods ``attach.*``: typed, bounded, unknown fields refused with a clear error."""

from typing import Annotated

import msgspec

from gateway.requests import Key, Name, SessionKey

__all__ = ["AttachRequest", "AttachmentRequest", "SendRequest"]

_Text = Annotated[str, msgspec.Meta(max_length=131_072)]
"""As much as the system takes as one argument of a program."""


class AttachRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``attach.open``: speak with a session's worker in the words of its own program, as if it was started here.

    ``session``: a key, or the path of a transcript; without one a conversation of its own is begun. ``arguments``: of
    the program, but for ``--mode rpc``. ``cwd``: where it was started. ``env``: what of its environment it looks at.
    """

    session: SessionKey | None = None
    agent: Name | None = None
    role: Name | None = None
    arguments: Annotated[list[_Text], msgspec.Meta(max_length=1_000)] = []
    cwd: Annotated[str, msgspec.Meta(max_length=4_096)]
    env: Annotated[dict[Name, _Text], msgspec.Meta(max_length=64)] = {}


class AttachmentRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``attach.end``: nothing more comes; answered when what was asked for is answered, or cannot be soon."""

    attachment: Key


class SendRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``attach.send``: one line. ``line``: the JSON object that it is, else ``text``: what it is instead.

    ``refusal``: why whoever read it could not pass it on as it was; it is answered with that.
    """

    attachment: Key
    line: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    text: str = ""
    refusal: Annotated[str, msgspec.Meta(max_length=1_000)] | None = None
