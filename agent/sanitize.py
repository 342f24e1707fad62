"""The conversation as it is sent to a model; the conversation itself stays as it is. Pure, idempotent, linear.

In this order: sender notes -> invalid images -> thinking (no model here takes it back) -> invalid calls -> one result
for each call, right after its message and in call order, as providers require (again once old turns are cut off) ->
details that are not for the model -> too many or too large images -> strict alternation, where a provider needs it.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TypeAlias

import msgspec

from agent.models.base import ToolDefinition
from agent.results import failure
from wire.entries import (
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptMessage,
)

_CHARS_PER_TOKEN = 4
_IMAGE_TOKENS = 1_600
_MESSAGE_TOKENS = 4


def estimate_tokens(messages: Iterable[TranscriptMessage]) -> int:
    """Tokens of the messages: a quarter of their characters, and a round number for each image."""
    return sum([_MESSAGE_TOKENS + sum(map(_block_chars, message.content)) for message in messages])


def estimate_overhead(system_prompt: str, tools: Sequence[ToolDefinition]) -> int:
    """Tokens of what is sent with every call."""
    return (len(system_prompt) + sum([tool.chars for tool in tools])) // _CHARS_PER_TOKEN


def _block_chars(block: ContentBlock) -> int:
    match block:
        case TextBlock(text) | ThinkingBlock(text):
            return len(text) // _CHARS_PER_TOKEN
        case ImageBlock():
            return _IMAGE_TOKENS
        case ToolUseBlock():
            return (len(block.name) + _json_chars(block.input)) // _CHARS_PER_TOKEN
        case ToolResultBlock():
            return _json_chars(block.content) // _CHARS_PER_TOKEN + _IMAGE_TOKENS * len(block.images)


def _json_chars(value: object) -> int:
    return len(value) if isinstance(value, str) else len(msgspec.json.encode(value))


def pair_results(messages: Sequence[TranscriptMessage]) -> list[TranscriptMessage]:
    """The messages with each result right after its call.

    A call without a result gets one that says so; results without a call, second results, and the second call of one
    id in one message are dropped. Idempotent.
    """
    by_call = _ResultsByCall(messages)
    placed: list[TranscriptMessage] = []
    for index, message in enumerate(messages):
        placed += _with_results(message, index, by_call) if message.role == "assistant" else _without_results(message)
    return placed


class _ResultsByCall:
    """The results of a conversation by call; a later message may use an id again."""

    def __init__(self, messages: Sequence[TranscriptMessage]) -> None:
        self._results: dict[str, list[tuple[int, ToolResultBlock]]] = {}
        self._calls: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    self._results.setdefault(block.tool_use_id, []).append((index, block))
                elif isinstance(block, ToolUseBlock):
                    self._calls.setdefault(block.id, []).append(index)

    def result_for(self, call: ToolUseBlock, index: int) -> ToolResultBlock:
        """The first result after the call's message, unless the id was used again before."""
        until = next((again for again in self._calls[call.id] if again > index), None)
        found = self._results.get(call.id, ())
        before = takewhile(lambda result: until is None or result[0] < until, found)
        return next((block for place, block in before if place > index), _missing_result(call))


def _with_results(message: TranscriptMessage, index: int, by_call: _ResultsByCall) -> Iterator[TranscriptMessage]:
    results: dict[str, ContentBlock] = {}
    kept: list[ContentBlock] = []
    for block in message.content:
        if isinstance(block, ToolUseBlock):
            if block.id in results:
                continue
            results[block.id] = by_call.result_for(block, index)
        kept.append(block)
    yield message if len(kept) == len(message.content) else msgspec.structs.replace(message, content=kept)
    if results:
        yield TranscriptMessage("user", list(results.values()), origin="tool")


def _without_results(message: TranscriptMessage) -> Iterator[TranscriptMessage]:
    rest = [block for block in message.content if not isinstance(block, ToolResultBlock)]
    if len(rest) == len(message.content):
        yield message
    elif rest:
        yield msgspec.structs.replace(message, content=rest)


def _missing_result(call: ToolUseBlock) -> ToolResultBlock:
    words = failure(
        f"The result of {call.name} is not there.",
        "runtime",
        recommendations=["Check for side effects before calling it again: it may have run."],
    )
    return ToolResultBlock(call.id, words, is_error=True)


Messages: TypeAlias = Sequence[TranscriptMessage]

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_USER_ORIGINS = frozenset({"prompt", "steer", "follow_up"})


class SanitizeRules(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds: ``turns`` of user messages, ``images`` (the latest), base64 characters of one image and of all.

    ``alternate``: user and model must take turns.
    """

    turns: int | None = None
    alternate: bool = False
    images: int = 20
    image_chars: int = 7 * 1024 * 1024
    all_image_chars: int = 28 * 1024 * 1024


def sanitize(messages: Messages, rules: SanitizeRules) -> list[TranscriptMessage]:
    """The messages for a model."""
    cleaned: Messages = [with_sender_note(message) for message in messages]
    if rules.turns is None and not rules.alternate and _is_plain(cleaned):
        return [message for message in cleaned if message.content]
    cleaned = _map_blocks(cleaned, _checked_images)
    cleaned = _map_blocks(cleaned, lambda block: [] if isinstance(block, ThinkingBlock) else [block])
    cleaned = pair_results(_map_blocks(cleaned, _checked_call))
    if rules.turns is not None:
        cleaned = pair_results(limit_history_turns(cleaned, rules.turns))
    cleaned = _limit_images(_map_blocks(cleaned, _without_details), rules)
    return merge_roles(cleaned) if rules.alternate else list(cleaned)


def _is_plain(messages: Messages) -> bool:
    return all(isinstance(block, TextBlock) for message in messages for block in message.content)


def limit_history_turns(messages: Messages, turns: int) -> list[TranscriptMessage]:
    """From the ``turns``-th last user message on; all when there are not more. Results and summaries do not count."""
    said = [
        index for index, message in enumerate(messages) if message.role == "user" and message.origin in _USER_ORIGINS
    ]
    if turns <= 0 or len(said) <= turns:
        return list(messages)
    return list(messages[said[-turns] :])


def with_sender_note(message: TranscriptMessage) -> TranscriptMessage:
    """With a note about the session that sent it."""
    if message.from_session is None:
        return message
    mark = TextBlock(f"[Message from another session: {message.from_session}]\n")
    return msgspec.structs.replace(message, content=[mark, *message.content], from_session=None)


def _map_blocks(
    messages: Messages, change: Callable[[ContentBlock], Sequence[ContentBlock]]
) -> list[TranscriptMessage]:
    """Each block replaced by the result of ``change``; messages left empty are dropped."""
    changed = []
    for message in messages:
        blocks = [new for block in message.content for new in change(block)]
        if len(blocks) == len(message.content) and all(map(operator.is_, blocks, message.content)):
            changed.append(message)
        elif blocks:
            changed.append(msgspec.structs.replace(message, content=blocks))
    return [message for message in changed if message.content]


def _checked_images(block: ContentBlock) -> Sequence[ContentBlock]:
    match block:
        case ImageBlock() if not _is_image(block):
            return [_image_note("it holds no PNG, JPEG, GIF or WebP image")]
        case ToolResultBlock(images=images) if images and not all(map(_is_image, images)):
            return [msgspec.structs.replace(block, images=[image for image in images if _is_image(image)])]
        case _:
            return [block]


def _is_image(image: ImageBlock) -> bool:
    return image.mime_type in _IMAGE_TYPES and bool(image.data) and len(image.data) % 4 == 0


def _image_note(why: str) -> TextBlock:
    return TextBlock(f"[image left out: {why}]")


def _checked_call(block: ContentBlock) -> Sequence[ContentBlock]:
    """A call without an id or a name is dropped; an input that is no object is wrapped in one."""
    if not isinstance(block, ToolUseBlock):
        return [block]
    if not block.id or not block.name:
        return []
    if isinstance(block.input, Mapping):
        return [block]
    given = block.input if isinstance(block.input, str) else msgspec.json.encode(block.input).decode()
    return [msgspec.structs.replace(block, input={"invalid_arguments": given[:2_000]})]


def _without_details(block: ContentBlock) -> Sequence[ContentBlock]:
    if isinstance(block, ToolResultBlock) and isinstance(block.content, dict) and "details" in block.content:
        content = {name: value for name, value in block.content.items() if name != "details"}
        return [msgspec.structs.replace(block, content=content)]
    return [block]


def _limit_images(messages: Messages, rules: SanitizeRules) -> list[TranscriptMessage]:
    """The latest images that fit; in place of others a note, of a tool's images nothing."""
    kept = _fitting_images((image for message in reversed(messages) for image in _images_of(message)), rules)

    def change(block: ContentBlock) -> Sequence[ContentBlock]:
        match block:
            case ImageBlock() if id(block) not in kept:
                return [_image_note("there are too many, or too large ones")]
            case ToolResultBlock(images=images) if any(id(image) not in kept for image in images):
                return [msgspec.structs.replace(block, images=[image for image in images if id(image) in kept])]
            case _:
                return [block]

    return _map_blocks(messages, change)


def _images_of(message: TranscriptMessage) -> list[ImageBlock]:
    """Latest first."""
    images: list[ImageBlock] = []
    for block in message.content:
        if isinstance(block, ImageBlock):
            images.append(block)
        elif isinstance(block, ToolResultBlock):
            images.extend(block.images)
    return images[::-1]


def _fitting_images(images: Iterable[ImageBlock], rules: SanitizeRules) -> set[int]:
    kept: set[int] = set()
    chars = 0
    for image in images:
        size = len(image.data)
        if size <= rules.image_chars and len(kept) < rules.images and chars + size <= rules.all_image_chars:
            kept.add(id(image))
            chars += size
    return kept


def merge_roles(messages: Messages) -> list[TranscriptMessage]:
    """Neighbours of one role in one message, and a user's message first."""
    joined: list[TranscriptMessage] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = _join(joined[-1], message)
        else:
            joined.append(message)
    if joined and joined[0].role == "assistant":
        joined.insert(
            0, TranscriptMessage("user", [TextBlock("(The conversation so far was left out.)")], origin="summary")
        )
    return joined


def _join(first: TranscriptMessage, second: TranscriptMessage) -> TranscriptMessage:
    origin = first.origin if first.origin in _USER_ORIGINS else second.origin
    return msgspec.structs.replace(first, content=[*first.content, *second.content], origin=origin)


class IncrementalSanitizer:
    """``sanitize`` for a growing conversation: only added messages are processed.

    A list that is given again has only grown since, and so has one that is returned again. Images, and calls and
    results of an id that was used before, affect older messages, as do rules that count turns or join neighbours: then
    everything is sanitized again, into a new list.
    """

    def __init__(self) -> None:
        self._rules = SanitizeRules()
        self._source: Sequence[TranscriptMessage] = ()
        self._seen = 0
        self._call_ids: set[str] = set()
        self._sanitized: list[TranscriptMessage] = []
        self._tokens = 0

    def sanitize(
        self, messages: Sequence[TranscriptMessage], rules: SanitizeRules
    ) -> tuple[Sequence[TranscriptMessage], int]:
        """The sanitized messages, and an estimate of their tokens."""
        is_local = messages is self._source and rules == self._rules and rules.turns is None and not rules.alternate
        added = messages[self._seen :] if is_local else messages
        call_ids = _call_ids(added)
        if not is_local or not self._call_ids.isdisjoint(call_ids) or any(map(_images_of, added)):
            added, call_ids = messages, _call_ids(messages)
            self._source, self._rules, self._sanitized, self._tokens, self._call_ids = messages, rules, [], 0, set()
        more = sanitize(added, rules)
        self._sanitized += more
        self._tokens += estimate_tokens(more)
        self._call_ids |= call_ids
        self._seen = len(messages)
        return self._sanitized, self._tokens


def _call_ids(messages: Messages) -> set[str]:
    """The ids of all calls, and of those that results belong to."""
    ids = set()
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                ids.add(block.id)
            elif isinstance(block, ToolResultBlock):
                ids.add(block.tool_use_id)
    return ids
