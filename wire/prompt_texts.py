"""Texts that supervisor and agent form alike: answer options in a prompt, and excerpts of long texts. Pure."""

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
