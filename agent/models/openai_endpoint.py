"""Where a chat-completions server is, its key and compatibility flags (flag, environment), and its timeouts."""

from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import SplitResult, urlsplit

import msgspec

from agent.models.openai_messages import CompatFlags

DEFAULT_BASE_URL = "https://api.openai.com/v1"

_COMPAT_WORDS = {
    "no-images": {"images": False},
    "strict-roles": {"strict_roles": True},
    "no-reasoning-effort": {"reasoning_effort": False},
    "no-stream-options": {"stream_options": False},
    "no-answer-options": {"answer_options": False},
}


class EndpointError(ValueError):
    """The base URL, the key or OPENAI_COMPAT cannot be used; the message is for the user and holds no secret."""


class Secret:
    """A text that shows itself only when asked: not in a repr, a log or a traceback."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Secret(***)" if self._text else "Secret()"

    def __bool__(self) -> bool:
        return bool(self._text)

    def value(self) -> str:
        """The text."""
        return self._text

    def redact(self, text: str) -> str:
        """A text without this one in it."""
        return text.replace(self._text, "***") if self._text else text


class Endpoint(msgspec.Struct, frozen=True):
    """A server. ``url`` is where chat completions are asked for, ``origin`` what errors call it.

    ``key_hint``: advice for the case that it refuses the request for its key.
    """

    url: str
    origin: str
    key: Secret
    compat: CompatFlags = CompatFlags()
    key_hint: str = ""

    @property
    def encrypted(self) -> bool:
        """Whether it is spoken to over TLS."""
        return self.url.startswith("https:")


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds that a server may take.

    ``connect``: to be reached. ``first_byte``: to begin its answer; wide, since a model may think in silence.
    ``between_bytes``: between two signs of life. ``count``: to count the tokens of a complete answer.
    ``error``: to say what is wrong, once it has said that something is.
    ``end``: to end a body after its last word, so that the connection can be used again. ``close``: to be left.
    """

    connect: float = 15.0
    first_byte: float = 300.0
    between_bytes: float = 120.0
    count: float = 2.0
    error: float = 5.0
    end: float = 0.1
    close: float = 2.0


def read_endpoint(base_url: str | None, environment: Mapping[str, str]) -> Endpoint:
    """The flag's URL before OPENAI_BASE_URL before the default; OPENAI_API_KEY; OPENAI_COMPAT, a comma list of quirks.

    Raises EndpointError.
    """
    base = (base_url or environment.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL).strip().rstrip("/")
    parts = _split(base)
    key = environment.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise EndpointError("OPENAI_API_KEY holds characters that no key can have")
    return Endpoint(
        url=f"{base}/chat/completions",
        origin=parts.netloc.rpartition("@")[2],
        key=Secret(key),
        compat=_parse_compat(environment.get("OPENAI_COMPAT", "")),
        key_hint=_key_hint(environment, has_key=bool(key)),
    )


def _key_hint(environment: Mapping[str, str], *, has_key: bool) -> str:
    """Workers of a pool do not inherit the terminal's variables: their key is in the settings."""
    in_a_pool = "POOL_WORKER_ID" in environment
    place = "OPENAI_API_KEY in [agents.NAME.env] of the pool's settings" if in_a_pool else "OPENAI_API_KEY"
    return f"check the key in {place}" if has_key else f"no key was sent: set {place}"


def _split(base: str) -> SplitResult:
    try:
        parts = urlsplit(base)
        _ = parts.port  # raises for one that is no number
    except ValueError:
        _reject_url("it cannot be read")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        _reject_url("it must begin with http://HOST or https://HOST")
    if parts.query or parts.fragment or not (base.isascii() and base.isprintable()):
        _reject_url("it may hold neither a query, nor a fragment, nor characters beyond ASCII")
    if parts.username or parts.password:
        _reject_url("a secret belongs into OPENAI_API_KEY")
    return parts


def _reject_url(why: str) -> NoReturn:
    raise EndpointError(f"the base URL of the model server cannot be used: {why}")


def _parse_compat(words: str) -> CompatFlags:
    chosen: dict[str, bool] = {}
    for word in filter(None, map(str.strip, words.split(","))):
        if word not in _COMPAT_WORDS:
            raise EndpointError(f"OPENAI_COMPAT does not know {word[:50]!r}; it knows: {', '.join(_COMPAT_WORDS)}")
        chosen |= _COMPAT_WORDS[word]
    return CompatFlags(**chosen)
