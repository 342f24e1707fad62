"""Shell patterns as regular expressions over paths with ``/``; pure.

``*`` and ``?`` stay within a name, ``**`` between slashes stands for any number of directories, ``[a-z]`` and
``[!a-z]`` for one character, a backslash takes the next character as it is. ``{a,b}`` is an alternative,
where that is asked for.
"""

import re

__all__ = ["glob_matcher", "translate"]


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
        if char == "[" and (end := _class_end(pattern, index)) > 0:
            parts.append(_class(pattern[index + 1 : end]))
            index = end + 1
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


def _class_end(pattern: str, start: int) -> int:
    """The index of the bracket that closes a class; a bracket that comes first in it is part of it."""
    first = start + 1 + (pattern[start + 1 : start + 2] in {"!", "^"})
    return pattern.find("]", first + 1)


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
