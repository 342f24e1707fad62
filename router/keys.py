"""Session keys: which conversation a message belongs to, as one text that can be read back.

A *structured* key begins with ``agent:``, ``cron:`` or ``hook:`` and has one of the forms below; a *free* key is any
other printable text. A text that begins like a structured key and has none of the forms is refused. After
``agent:NAME:`` stands a form that the router makes, or any other name, which is a session of that agent.
"""

import re
from pathlib import Path
from typing import assert_never
from urllib.parse import quote, unquote

import msgspec

from errors import UsageError
from router.workspaces import file_name

MAX_KEY_LENGTH = 512
"""Characters of any key, as written."""

_AGENT_ID = re.compile(r"[a-z0-9_-]{1,64}")
_UNPRINTABLE = r"\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""Control characters, line breaks, and what is invisible or turns the text around it.

A list of our own: what Unicode calls printable grows with each Python, and no key may change with it.
"""
_RESERVED = re.compile(f"[%:/{_UNPRINTABLE}]")
_RAW_UNPRINTABLE = re.compile(f"[{_UNPRINTABLE}]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MAX_QUOTED = 80


def encode_part(identifier: str) -> str:
    """An identifier as it stands between two colons: what is reserved or cannot be shown becomes ``%XX`` of UTF-8."""
    if identifier in (".", ".."):
        return identifier.replace(".", "%2E")
    return _RESERVED.sub(lambda found: quote(found[0], safe=""), identifier)


def _decode_part(part: str) -> str:
    """The identifier that a part means; escapes that are not needed are understood too. Raises UsageError."""
    if _BAD_ESCAPE.search(part):
        raise UsageError(
            f"{_quote_for_error(part)} in a session key has a % that no escape follows; a plain % is written %25"
        )
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as exc:
        raise UsageError(f"the escapes of {_quote_for_error(part)} in a session key are no UTF-8") from exc


def _check_identifier(name: str, value: str) -> None:
    """Raise UsageError for an empty identifier, and for one with half a character (a lone surrogate) in it."""
    if not value:
        raise UsageError(f"a session key needs its {name}, and the one given is empty")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"the {name} {_quote_for_error(value)} of a session key is no Unicode text") from exc


def _check_length(text: str) -> None:
    """Raise UsageError for a key longer than any may be."""
    if len(text) > MAX_KEY_LENGTH:
        raise UsageError(f"a session key has 1 to {MAX_KEY_LENGTH} characters, this one has {len(text)}")


def _quote_for_error(text: str) -> str:
    """The text as an error may show it, whatever it holds."""
    return ascii(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}...")


_NAMESPACES = ("agent", "cron", "hook")
_FORMS = (
    "after agent:NAME: stands main:main, dm:ID, CHANNEL[:account:ID]:dm:ID, CHANNEL[:account:ID]:group:ID[:topic:ID], "
    "CHANNEL:channel:ID[:thread:ID] or any name of one or more parts; the others are cron:JOB and hook:ID; a colon "
    "within a part is written %3A"
)


class _Key(msgspec.Struct, frozen=True):
    """Every key that exists can be written, and what is written reads back as the same key."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "agent":
                if not _AGENT_ID.fullmatch(value):
                    text = _quote_for_error(value)
                    raise UsageError(f"{text} is no agent in a session key: 1 to 64 of a-z, 0-9, _ and -")
            elif isinstance(value, str):
                _check_identifier(name, value)
            elif isinstance(value, tuple):
                for part in value:
                    _check_identifier("name", part)
        _check_length(format_session_key(self))  # type: ignore[arg-type]  # every subclass is one of SessionKey


class MainKey(_Key, frozen=True):
    """``agent:{agent}:main:main``: an agent's own conversation, where beats and cron jobs speak too."""

    agent: str


class DmKey(_Key, frozen=True, kw_only=True):
    """``agent:{agent}[:{channel}[:account:{account}]]:dm:[unlinked:]{sender}``: one person's conversation.

    ``sender`` is a channel's id of a person, or the name of an identity link. ``unlinked`` marks a person whose id
    happens to be the name of another person's link.
    """

    agent: str
    sender: str
    channel: str | None = None
    account: str | None = None
    unlinked: bool = False

    def __post_init__(self) -> None:
        """An account is one of a channel."""
        if self.account is not None and self.channel is None:
            raise UsageError("a session key names an account only together with its channel")
        super().__post_init__()


class GroupKey(_Key, frozen=True, kw_only=True):
    """``agent:{agent}:{channel}[:account:{account}]:group:{chat}[:topic:{topic}]``."""

    agent: str
    channel: str
    chat: str
    account: str | None = None
    topic: str | None = None


class ChannelKey(_Key, frozen=True, kw_only=True):
    """``agent:{agent}:{channel}:channel:{chat}[:thread:{thread}]``."""

    agent: str
    channel: str
    chat: str
    thread: str | None = None


class NamedKey(_Key, frozen=True):
    """``agent:{agent}:{part}[:{part}...]``: a session of that agent under any name that has no other form.

    Front ends make such keys of their own: ``agent:ops:project:docs``, ``agent:ops:subagent:ID``.
    """

    agent: str
    name: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse a name without parts, and one that would read back as another kind of key."""
        super().__post_init__()
        if not self.name or _agent_form(self.agent, [encode_part(part) for part in self.name]) is not None:
            text = _quote_for_error(":".join(self.name))
            raise UsageError(f"{text} is no name for a session key: it is empty, or has the form of another key")


class CronKey(_Key, frozen=True):
    """``cron:{job}``: an isolated job's own conversation."""

    job: str


class HookKey(_Key, frozen=True):
    """``hook:{hook}``: what a webhook starts."""

    hook: str


class FreeKey(_Key, frozen=True):
    """Any other printable text, as it is."""

    text: str

    def __post_init__(self) -> None:
        """Refuse what no listing could show, and what would read back as another kind of key."""
        if not self.text:
            raise UsageError(f"a session key has 1 to {MAX_KEY_LENGTH} characters, this one is empty")
        if self.text.strip() in ("", "*"):
            raise UsageError(
                f"{_quote_for_error(self.text)} is no session key: a blank names nothing, and * means all of them"
            )
        if not self.text.isprintable():
            raise UsageError(
                f"the session key {_quote_for_error(self.text)} holds characters that cannot be printed; drop them"
            )
        if _is_structured(self.text):
            raise UsageError(
                f"{_quote_for_error(self.text)} is no free session key, since it begins like a structured one"
            )
        _check_length(self.text)


SessionKey = MainKey | DmKey | GroupKey | ChannelKey | NamedKey | CronKey | HookKey | FreeKey


def main_session_key(agent: str) -> str:
    """The key of an agent's main conversation: of direct messages with ``dm_scope = "main"``, of beats and cron jobs.

    Raises UsageError for what is no agent id.
    """
    return format_session_key(MainKey(agent.lower()))


def normalize_session_key(text: str) -> str:
    """A key that a front end gives, in the one spelling that its conversation has.

    Aliases are resolved (``agent:ops:main``, ``direct`` for ``dm``, an agent in capitals, escapes that are not needed).
    Raises UsageError for what can be no key.
    """
    return format_session_key(parse_session_key(text))


def session_dir(data_dir: Path, key: SessionKey | str) -> Path:
    """The directory for what a session keeps besides its transcript: no other session's, never outside ``data_dir``.

    A ``str`` is taken as ``normalize_session_key`` returns it. The directory need not exist.
    """
    return data_dir / "by-session" / file_name(key if isinstance(key, str) else format_session_key(key))


def format_session_key(key: SessionKey) -> str:
    """The text of a key; ``parse_session_key`` makes the same key of it."""
    parts: tuple[str, ...]
    match key:
        case FreeKey(text):
            return text
        case MainKey(agent):
            parts = ("agent", agent, "main", "main")
        case DmKey():
            form = ("dm", "unlinked") if key.unlinked else ("dm",)
            parts = ("agent", key.agent, *_channel_parts(key.channel, key.account), *form, encode_part(key.sender))
        case GroupKey():
            place = _channel_parts(key.channel, key.account)
            parts = ("agent", key.agent, *place, *_named_parts("group", key.chat), *_named_parts("topic", key.topic))
        case ChannelKey():
            chat = (*_named_parts("channel", key.chat), *_named_parts("thread", key.thread))
            parts = ("agent", key.agent, encode_part(key.channel), *chat)
        case NamedKey(agent, name):
            parts = ("agent", agent, *map(encode_part, name))
        case CronKey(identifier):
            parts = _named_parts("cron", identifier)
        case HookKey(identifier):
            parts = _named_parts("hook", identifier)
        case _:
            assert_never(key)
    return ":".join(parts)


def _channel_parts(channel: str | None, account: str | None) -> tuple[str, ...]:
    return () if channel is None else (encode_part(channel), *_named_parts("account", account))


def _named_parts(name: str, identifier: str | None) -> tuple[str, ...]:
    return () if identifier is None else (name, encode_part(identifier))


def parse_session_key(text: str) -> SessionKey:
    """The key that a text means; what has one meaning only is understood, also where we would write it otherwise.

    Raises UsageError for a text that begins like a structured key and has none of its forms, and for a free one that
    no listing could show.
    """
    _check_length(text)
    if not _is_structured(text):
        return FreeKey(text)
    if _RAW_UNPRINTABLE.search(text):
        raise UsageError(
            f"the session key {_quote_for_error(text)} holds characters that cannot be shown; write them as %XX"
        )
    key: SessionKey | None = None
    match text.split(":"):
        case ["agent", agent, first, *rest]:
            parts = [first, *rest]
            key = _agent_form(agent.lower(), parts) or NamedKey(agent.lower(), tuple(map(_decode_part, parts)))
        case ["cron", job]:
            key = CronKey(_decode_part(job))
        case ["hook", hook]:
            key = HookKey(_decode_part(hook))
    if key is None:
        raise UsageError(f"{_quote_for_error(text)} is no session key; {_FORMS}")
    return key


def _is_structured(text: str) -> bool:
    """Capitals count too: ``Agent:`` would be a slip, not another kind of key."""
    namespace, colon, _ = text.partition(":")
    return bool(colon) and namespace.lower() in _NAMESPACES


def _agent_form(agent: str, parts: list[str]) -> SessionKey | None:
    match parts:
        case ["main"] | ["main", "main"]:
            return MainKey(agent)
        case ["dm" | "direct", sender] | ["dm" | "direct", "unlinked", sender]:
            return DmKey(agent=agent, sender=_decode_part(sender), unlinked=len(parts) == 3)
        case [channel, "account", account, *form]:
            return _key_in_channel(agent, _decode_part(channel), _decode_part(account), form)
        case [channel, *form]:
            return _key_in_channel(agent, _decode_part(channel), None, form)
        case _:
            return None


def _key_in_channel(agent: str, channel: str, account: str | None, form: list[str]) -> SessionKey | None:
    match form:
        case ["dm" | "direct", sender] | ["dm" | "direct", "unlinked", sender]:
            sender, unlinked = _decode_part(sender), len(form) == 3
            return DmKey(agent=agent, channel=channel, account=account, sender=sender, unlinked=unlinked)
        case ["group", chat]:
            return GroupKey(agent=agent, channel=channel, account=account, chat=_decode_part(chat))
        case ["group", chat, "topic", topic]:
            chat, topic = _decode_part(chat), _decode_part(topic)
            return GroupKey(agent=agent, channel=channel, account=account, chat=chat, topic=topic)
        case ["channel", chat] if account is None:
            return ChannelKey(agent=agent, channel=channel, chat=_decode_part(chat))
        case ["channel", chat, "thread", thread] if account is None:
            return ChannelKey(agent=agent, channel=channel, chat=_decode_part(chat), thread=_decode_part(thread))
        case _:
            return None
