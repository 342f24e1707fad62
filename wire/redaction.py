"""Redaction: known secret values in text and bytes, and whatever looks like a secret in log fields. Pure.

Names of variables and fields decide what is secret; other values stay, since error messages need them.
"""

import functools
import itertools
import json
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, overload

HIDDEN = "***"
_MAX_MORE = 20
"""Sets of further values; as many as one process may have conversations open."""
_MIN_SECRET_CHARS = 6
"""Shorter values of an environment are words such as ``1`` and ``true``: hiding those would hide the whole text."""


class SecretMask:
    """Puts ``***`` in the place of each value, and of each line of one that has several, as a key in PEM has.

    Each is found as it is and as JSON escapes it. Mask before cutting, or cut at ``safe_cut``: half a value is not
    recognized.

    Attributes:
        longest: bytes of the longest of them.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = tuple(values)
        self._more: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._compile()

    def hide_also(self, more: Iterable[str]) -> None:
        """From now on hide these besides the values that it was made with, and those of 19 other calls before."""
        values = tuple(more)
        if not values:
            return
        is_known = values in self._more
        self._more[values] = None
        self._more.move_to_end(values)
        if is_known:
            return
        if len(self._more) > _MAX_MORE:
            self._more.popitem(last=False)
        self._compile()

    def _compile(self) -> None:
        values = (*self._values, *itertools.chain.from_iterable(self._more))
        parts = {part for value in values for part in (value, *value.splitlines()) if len(part) >= _MIN_SECRET_CHARS}
        found = {spelling for part in parts for spelling in _spellings(part)}
        longest_first = sorted(found, key=len, reverse=True)
        encoded = [value.encode("utf-8", "surrogateescape") for value in longest_first]
        self.longest = max(map(len, encoded), default=0)
        self._text_pattern = re.compile("|".join(map(re.escape, longest_first))) if found else None
        self._bytes_pattern = re.compile(b"|".join(map(re.escape, encoded))) if found else None

    def text(self, text: str) -> str:
        """The text without the values."""
        return text if self._text_pattern is None else self._text_pattern.sub(HIDDEN, text)

    def data(self, data: bytes) -> bytes:
        """The same for bytes, which need not be text."""
        return data if self._bytes_pattern is None else self._bytes_pattern.sub(HIDDEN.encode(), data)

    @overload
    def prefix(self, said: str, limit: int) -> str: ...

    @overload
    def prefix(self, said: bytes, limit: int) -> bytes: ...

    def prefix(self, said: str | bytes, limit: int) -> str | bytes:
        """The first ``limit`` characters or bytes without the values; nothing is left of one that goes on behind."""
        begin = said[: self.safe_cut(said, limit)]
        return (self.text(begin) if isinstance(begin, str) else self.data(begin))[:limit]

    def safe_cut(self, said: str | bytes | bytearray, at: int) -> int:
        """Where to cut so that no value is divided: ``at``, or the end of the value that lies across it."""
        values: re.Pattern[Any] | None = self._text_pattern if isinstance(said, str) else self._bytes_pattern
        if values is not None:
            for found in values.finditer(said, 0, at + self.longest):
                if found.end() > at:
                    return found.end() if found.start() < at else at
        return at

    def json(self, value: Any) -> Any:
        """The same for decoded JSON, all its names and texts."""
        if self._text_pattern is None:
            return value
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.json(item) for item in value]
            case dict():
                return {self.json(name): self.json(item) for name, item in value.items()}
            case _:
                return value


def _spellings(value: str) -> Iterable[str]:
    """The value, and what stands for it in the text of a JSON document."""
    return value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]


_MAX_CHARS = 4096
_MAX_ITEMS = 100
_MAX_DEPTH = 6
_LARGEST_INT = 2**63

_SECRET_WORDS = frozenset(
    {"authorization", "apikey", "cookie", "cookies", "credential", "credentials"}
    | {"passphrase", "passwd", "password", "secret", "secrets", "token"}
)
_SECRET_PAIRS = frozenset({("access", "key"), ("api", "key"), ("auth", "key"), ("private", "key"), ("signing", "key")})
_TOKEN_COUNT_WORDS = frozenset({"count", "limit", "max", "usage", "used"})
"""Beside ``token`` they make a number of tokens of it."""
_LOCATION_WORDS = frozenset({"dir", "file", "path"})
"""At the end of a name they say where a secret lies, not what it is."""
_ENVIRONMENT_NAMES = frozenset({"env", "environ", "environment"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_SECRET_NAME_PATTERN = r"(?:authorization|(?:api|access|private)[_-]?key|token|passw(?:or)?d|passphrase|secret)s?"  # noqa: S105
_SECRET_TEXTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(cookie[\"']?\s{0,8}[:=]\s{0,8})[^\r\n]+",
        rf"""({_SECRET_NAME_PATTERN}["']?\s{{0,8}}[:=]\s{{0,8}}["']?(?:(?:bearer|basic)\s+)?)(?!\d+\b)[^\s"',;&]+""",
        r"\b(bearer\s+)[\w.~+/=-]{6,}",
        r"(://[^\s:/@]{0,64}:)[^\s@/]+(?=@)",
        r"(?<![\w-])()sk-[\w-]{8,}",
        r"(?<![\w-])()(?:gh[pousr]_|github_pat_|xox[abprs]-|AKIA|AIza)[\w-]{10,}",
        r"(?<![\w-])()eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]+)?",
    )
)
_SUSPICIOUS = re.compile(
    r"authorization|key|token|passw|passphrase|secret|cookie|bearer|://|sk-|gh[pousr]_|github|xox|AKIA|AIza|eyJ",
    re.IGNORECASE,
)
"""What every one of them contains: most texts have none of it."""
_LAST_WORD = re.compile(r"(?<!\S)\S+\Z")


class Redactor:
    """Makes of anything what a log may hold: None, booleans, numbers, clean texts, and lists and tables of these."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._mask = SecretMask()

    def add_secrets(self, values: Iterable[str]) -> None:
        """These values appear in no text from now on."""
        self._values.update(values)
        self._mask = SecretMask(self._values)

    def fields(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an event."""
        return self._table(event, 0, is_secret=False)

    def text(self, text: str) -> str:
        """One text: bounded, without what looks like a secret, every control code but line ends and tabs visible."""
        end = self._mask.safe_cut(text, 2 * _MAX_CHARS)  # and again below: no secret is cut before it is known as one
        shown = self._mask.text(text[:end])
        if _SUSPICIOUS.search(shown):
            for pattern in _SECRET_TEXTS:
                shown = pattern.sub(rf"\g<1>{HIDDEN}", shown)
        if len(shown) <= _MAX_CHARS and end < len(text):  # what was hidden is shorter: the first cut would be seen
            shown = _LAST_WORD.sub("", shown)
        if len(shown) > _MAX_CHARS or end < len(text):
            shown = f"{shown[:_MAX_CHARS]}... (of {len(text)} characters)"
        return shown if shown.isprintable() else "".join(map(_escape_control, shown))

    def _value(self, value: Any, depth: int, *, is_secret: bool) -> Any:
        match value:
            case Mapping() if depth < _MAX_DEPTH:
                return self._table(value, depth + 1, is_secret=is_secret)
            case list() | tuple() if depth < _MAX_DEPTH:
                items = [self._value(item, depth + 1, is_secret=is_secret) for item in value[:_MAX_ITEMS]]
                return items if len(value) <= _MAX_ITEMS else [*items, f"... ({len(value) - _MAX_ITEMS} more)"]
            case _ if is_secret and value is not None:
                return HIDDEN
            case _:
                return self._scalar(value)

    def _scalar(self, value: Any) -> bool | int | float | str | None:
        match value:
            case None | bool():
                return value
            case int() if abs(value) < _LARGEST_INT:
                return int(value)
            case float():
                return float(value)
            case _:
                return self.text(_safe_str(value))

    def _table(self, table: Mapping[Any, Any], depth: int, *, is_secret: bool) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, value in list(table.items())[:_MAX_ITEMS]:
            name = self.text(_safe_str(key))
            shown[name] = self._value(value, depth, is_secret=is_secret or is_secret_name(name))
        if len(table) > _MAX_ITEMS:
            shown["..."] = f"{len(table) - _MAX_ITEMS} more"
        return shown


@functools.lru_cache(maxsize=256)
def is_secret_name(key: str) -> bool:
    """Whether what is called so, in a log, in the settings or on a command line, is not to be shown."""
    words = [word.lower() for word in _WORD.findall(key)]
    if words and (words[-1] in _LOCATION_WORDS or ("token" in words and not _TOKEN_COUNT_WORDS.isdisjoint(words))):
        return False
    is_pair = not _SECRET_PAIRS.isdisjoint(itertools.pairwise(words))
    return is_pair or not _SECRET_WORDS.isdisjoint(words) or key.lower() in _ENVIRONMENT_NAMES


def _safe_str(value: Any) -> str:
    try:
        return str(value)
    except Exception as exc:  # noqa: BLE001  # whatever an object does when it is asked who it is, the log goes on
        return f"<{type(value).__name__} that cannot be shown: {type(exc).__name__}>"


def _escape_control(ch: str) -> str:
    return ch if ch.isprintable() or ch in "\n\t" else ch.encode("unicode_escape").decode()


_SECRET_VARIABLE = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|(?:^|_)(?:PASS|PAT|PIN|AUTH|AUTHORIZATION)(?:_|$)|_PWD$",
    re.IGNORECASE,
)
_LOCATION_SUFFIX = re.compile(r"_(?:DIR|FILE|PATH|HOME)$", re.IGNORECASE)
"""Names that end so hold the place of a secret, not its value."""
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def is_secret_variable(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return _SECRET_VARIABLE.search(name) is not None and _LOCATION_SUFFIX.search(name) is None


def secret_values(variables: Iterable[tuple[str, str]], marked: Collection[str] = ()) -> tuple[str, ...]:
    """The secret values: by the variable's name, because it is ``marked``, or as a URL with a password."""
    return tuple(
        value
        for name, value in variables
        if name in marked or is_secret_variable(name) or _PASSWORD_IN_URL.search(value)
    )
