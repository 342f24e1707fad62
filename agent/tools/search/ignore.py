"""Globs and ``.gitignore`` rules over paths with ``/``. Pure.

``*`` and ``?`` stay within a name, ``**`` between slashes stands for any number of directories, ``[a-z]`` and
``[!a-z]`` for one character; a backslash takes the next character literally; ``{a,b}``, where allowed, is an
alternative. The last ignore rule that matches decides, ``!`` takes back. Consecutive rules of one sign are one regular
expression, since a tree has many names and a file many rules.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

_CLASS = re.compile(r"\[[!^]?(?:\\.|[^\\])(?:\\.|[^\]\\])*\]", re.DOTALL)
"""A class of characters; a bracket that comes first in it, or is escaped, is one of them."""


def translate(pattern: str, *, braces: bool) -> str:
    """The source of a regular expression (DOTALL) that matches what the pattern does, from start to end."""
    parts: list[str] = []
    index = depth = 0
    use_braces = braces and pattern.count("{") == pattern.count("}")
    while index < len(pattern):
        char = pattern[index]
        if char == "*":
            index = _stars(pattern, index, parts)
            continue
        if char == "[" and (found := _CLASS.match(pattern, index)):
            parts.append(_class(found.group()[1:-1]))
            index = found.end()
            continue
        if char == "\\" and index + 1 < len(pattern):
            index += 1
            parts.append(re.escape(pattern[index]))
        elif use_braces and char in "{}":
            depth += 1 if char == "{" else -1
            parts.append("(?:" if char == "{" else ")")
        elif char == "," and depth > 0:
            parts.append("|")
        else:
            parts.append("[^/]" if char == "?" else re.escape(char))
        index += 1
    return "".join(parts)


def _stars(pattern: str, start: int, parts: list[str]) -> int:
    """Translate the stars from ``start`` on; where to go on."""
    end = start
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    begins = start == 0 or pattern[start - 1] == "/"
    if end - start < 2 or not begins or (end < len(pattern) and pattern[end] != "/"):
        parts.append("[^/]*")
        return end
    if end == len(pattern):
        parts.append(".+")
        return end
    parts.append("(?:.*/)?")
    return end + 1


def _class(content: str) -> str:
    sign = "^" if content[:1] in {"!", "^"} else ""
    members = content[1:] if sign else content
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", members)
    return f"(?!/)[{sign}{escaped}]"


def glob_matcher(pattern: str) -> "re.Pattern[str]":
    """For paths: a pattern without a slash is for the last name, one with a slash for the whole path.

    Raises re.error.
    """
    source = translate(pattern.lstrip("/"), braces=True)
    anywhere = "" if "/" in pattern.rstrip("/") else "(?:.*/)?"
    return re.compile(f"{anywhere}(?:{source})", re.DOTALL)


class _Rule(NamedTuple):
    is_negated: bool
    only_directories: bool
    source: str


class _RuleGroup(NamedTuple):
    is_negated: bool
    files: "re.Pattern[str] | None"
    directories: "re.Pattern[str]"


class IgnoreRules:
    """One ignore file."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._groups = [
            _compile_group(takes_back, list(members))
            for takes_back, members in groupby(reversed(rules), key=lambda rule: rule.is_negated)
        ]

    def is_ignored(self, path: str, *, is_directory: bool) -> bool | None:
        """Whether the file says ignore (True) or keep (False) of a path taken from its directory; None: neither."""
        for group in self._groups:
            pattern = group.directories if is_directory else group.files
            if pattern is not None and pattern.fullmatch(path):
                return not group.is_negated
        return None


def _compile_group(takes_back: bool, rules: Sequence[_Rule]) -> _RuleGroup:  # noqa: FBT001 - the sign of the rules
    for_files = [rule.source for rule in rules if not rule.only_directories]
    everything = [rule.source for rule in rules]
    return _RuleGroup(
        takes_back, _compile_alternatives(for_files) if for_files else None, _compile_alternatives(everything)
    )


def _compile_alternatives(sources: Sequence[str]) -> "re.Pattern[str]":
    return re.compile("|".join(sources), re.DOTALL)


def parse_rules(text: str) -> IgnoreRules:
    """Read an ignore file; a line that is no pattern is passed over."""
    rules = (_rule(line.removesuffix("\r")) for line in text.removeprefix("\ufeff").split("\n"))
    return IgnoreRules([rule for rule in rules if rule is not None])


def _rule(line: str) -> _Rule | None:
    pattern = _without_trailing_spaces(line)
    if not pattern or pattern.startswith("#"):
        return None
    takes_back = pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    only_directories = pattern.endswith("/")
    pattern = pattern.removesuffix("/")  # of two at the end one stays, and such a pattern matches nothing
    if not pattern:
        return None
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    source = f"{anywhere}(?:{translate(pattern.removeprefix('/'), braces=False)})"
    try:
        re.compile(source)
    except re.error:  # such as [z-a]
        return None
    return _Rule(takes_back, only_directories, source)


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    if stripped.endswith("\\") and len(stripped) < len(line):
        return f"{stripped} "
    return stripped


class _ScopedRules(NamedTuple):
    rules: IgnoreRules
    above: str
    """What leads from the directory of the rules to the root of the search (``"a/b/"``), if they lie above it."""
    below: int
    """The length of what leads from the root to the directory of the rules."""


class IgnoreStack:
    """The rules in force at one directory of a search: its own and those of all directories above, outermost first."""

    def __init__(self, scopes: tuple[_ScopedRules, ...] = ()) -> None:
        self._scopes = scopes

    def with_rules_above(self, rules: IgnoreRules, above: str) -> "IgnoreStack":
        """With the rules of a directory above the root of the search (or of the root: ``""``)."""
        return IgnoreStack((*self._scopes, _ScopedRules(rules, above, 0)))

    def with_rules_of(self, directory: str, rules: IgnoreRules) -> "IgnoreStack":
        """With the rules of a directory in the search; ``directory`` is its path from the root, with a slash."""
        return IgnoreStack((*self._scopes, _ScopedRules(rules, "", len(directory))))

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Whether a path (from the root) is left out; what lies in a directory that is left out is never asked for."""
        for scope in reversed(self._scopes):
            verdict = scope.rules.is_ignored(scope.above + path[scope.below :], is_directory=is_directory)
            if verdict is not None:
                return verdict
        return False
