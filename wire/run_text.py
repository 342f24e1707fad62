"""Texts of a run that several rooms form alike: answer options in its prompt, its text from events, excerpts. Pure."""

from collections.abc import Iterable

import msgspec

from wire.messages import AnswerOptions, JsonAnswer


def answer_instructions(options: AnswerOptions, *, passed_on: bool) -> str:
    """The options as text. ``passed_on``: JSON form and tool choice are also parameters of the model call."""
    words = [options.instructions]
    if options.json is not None and not (passed_on and options.json.schema is not None):
        words.append(
            _json_instruction(options.json)
        )  # servers refuse a bare "json_object" unless a message mentions JSON
    if options.must_call and not passed_on:
        words.append(_tool_call_instruction(options.must_call))
    return "\n\n".join(filter(None, words))


def _json_instruction(wanted: JsonAnswer) -> str:
    if wanted.schema is None:
        return "Your final answer is one JSON object and nothing else: no markdown fence, no text around it."
    about = f" It is: {wanted.description}" if wanted.description else ""
    schema = msgspec.json.encode(wanted.schema).decode()
    return (
        "Your final answer is one JSON value that fits the JSON schema below and nothing else: no markdown fence, no "
        f"text around it.{about}\n{schema}"
    )


def _tool_call_instruction(names: list[str]) -> str:
    if len(names) == 1:
        return f"Do not answer in text: call the tool {names[0]}."
    return f"Do not answer in text: call one of the tools {', '.join(names)}."


MAX_RESULT_CHARS = 8_000
"""Characters of a tool call's result in events."""


def excerpt(text: str, most: int = MAX_RESULT_CHARS) -> str:
    """The text, or about ``most`` characters of it: three quarters from its beginning, the rest from its end."""
    if len(text) <= most:
        return text
    head = most * 3 // 4
    tail = most - head
    return f"{text[:head]}\n[... {len(text) - most} characters left out ...]\n{text[-tail:]}"


PARAGRAPH_EVENTS = frozenset({"tool:start", "compaction:end"})
"""Text after one of these begins a new paragraph."""
_PARAGRAPH_BREAK = "\n\n"


class _TextData(msgspec.Struct, gc=False):
    """The data of a text event: a chunk has ``delta``; a snapshot, which stands for many chunks, ``text``."""

    delta: str = ""
    text: str = ""


_read_texts = msgspec.json.Decoder(list[_TextData])


def joined_text(data: Iterable[msgspec.Raw]) -> str:
    """The text of the data of some text events. Raises DECODE_ERRORS for data of another shape."""
    pieces = _read_texts.decode(b"[%b]" % b",".join(data))
    return "".join([piece.delta or piece.text for piece in pieces])


class TextAssembler:
    """One for each run: counts its text, and breaks it into paragraphs."""

    def __init__(self) -> None:
        self.length = 0
        """Characters so far."""
        self._has_gap = False

    def break_paragraph(self) -> None:
        """The next text begins a new paragraph, unless it is the first."""
        self._has_gap = self.length > 0

    def add(self, text: str) -> str:
        """The text with the break before it."""
        if not text:
            return ""
        piece = f"{_PARAGRAPH_BREAK}{text}" if self._has_gap else text
        self._has_gap = False
        self.length += len(piece)
        return piece
