"""Links from the first appearance of a word on a page to what the glossary says of it."""

import re
from collections.abc import Collection, Iterator

_ROW = re.compile(r"^\| \*([a-z ]+)\* \|", re.MULTILINE)
_SKIPPED = (
    r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)",  # code
    r"`[^`]+`",
    r"^#.*?$",  # headings
    r"^ {4}.*?$",
    r"!?\[[^]]*\](?:\([^)]*\)|\[[^]]*\])",  # links
    r"<[^>]*>",
    r"\*\*[^*]+\*\*",
)
_VERBS = frozenset({"attach", "beat", "guard", "hold", "lease", "park", "retire", "run", "steer", "turn"})
"""Words that are something else where no article comes before them."""
_ARTICLE = r"(?<=\ba )|(?<=\bthe )|(?<=\bits )|(?<=\beach )"


def glossary_words(glossary: str) -> list[str]:
    """The words that the page explains."""
    return _ROW.findall(glossary)


def with_anchors(glossary: str) -> str:
    """The page, with an anchor at each word."""
    return _ROW.sub(lambda row: f"| *{row[1]}*{{ #{_anchor(row[1])} }} |", glossary)


def link_words(page: str, words: Collection[str], glossary: str) -> str:
    """The page, with each of the words linked where it first stands in a sentence; ``glossary``: the way to it.

    Code, headings and links stay as they are.
    """
    linked: set[str] = set()

    def link(found: re.Match[str]) -> str:
        text = found["word"]
        if not text:
            return found[0]
        word = next(word for word in words if text.lower() in _forms(word))
        if word in linked:
            return text
        linked.add(word)
        return f"[{text}]({glossary}#{_anchor(word)})"

    return _pattern(words).sub(link, page)


def _pattern(words: Collection[str]) -> re.Pattern[str]:
    longest_first = sorted(words, key=len, reverse=True)
    patterns = [pattern for word in longest_first for pattern in _word_patterns(word)]
    text = rf"{'|'.join(_SKIPPED)}|(?P<word>(?<![\w/.-])(?:{'|'.join(patterns)})(?![\w/-]|\.\w))"
    return re.compile(text, re.MULTILINE | re.DOTALL)


def _word_patterns(word: str) -> Iterator[str]:
    first = f"[{word[0].upper()}{word[0]}]{word[1:]}"
    if word in _VERBS:
        yield f"(?:{_ARTICLE}){word}"
    else:
        yield rf"{first}s?"


def _forms(word: str) -> set[str]:
    return {word, f"{word}s"}


def _anchor(word: str) -> str:
    return word.replace(" ", "-")
