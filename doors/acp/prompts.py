"""From the content blocks of a prompt to a text and images. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from doors.acp.jsonrpc import INVALID_PARAMS, EditorError

_MAX_IMAGES = 32


class PromptContent(NamedTuple):
    """What an agent is given. ``images`` are as ``wire.messages.ImageContent``."""

    text: str
    images: list[dict[str, str]]


class _EmbeddedResource(msgspec.Struct):
    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: Any = msgspec.field(name="mimeType", default=None)


class PromptBlock(msgspec.Struct, rename={"mime_type": "mimeType"}):
    """A content block of any type; which members it needs depends on that."""

    type: str
    text: str | None = None
    data: str | None = None
    mime_type: Any = None
    uri: str | None = None
    name: str | None = None
    resource: _EmbeddedResource | None = None


def read_prompt(blocks: Sequence[PromptBlock]) -> PromptContent:
    """The text with its links in their places, and embedded files at its end.

    Raises EditorError that names the block: it is of an unknown type, audio, or lacks a member.
    """
    texts: list[str] = []
    files: list[str] = []
    images: list[dict[str, str]] = []
    for number, block in enumerate(blocks):
        try:
            _read_block(block, texts, files, images)
        except ValueError as exc:
            raise EditorError(INVALID_PARAMS, f"params.prompt[{number}].{exc}") from exc
    if len(images) > _MAX_IMAGES:
        raise EditorError(INVALID_PARAMS, f"params.prompt: it has {len(images)} images, and {_MAX_IMAGES} are taken")
    content = PromptContent("\n\n".join(["".join(texts), *files]).strip("\n"), images)
    if not content.text.strip() and not images:
        raise EditorError(INVALID_PARAMS, "params.prompt: it is empty")
    return content


def _read_block(block: PromptBlock, texts: list[str], files: list[str], images: list[dict[str, str]]) -> None:
    match block:
        case PromptBlock(type="text", text=str(text)):
            texts.append(text)
        case PromptBlock(type="image", data=str(data)) if data:
            images.append(_image(data, block.mime_type))
        case PromptBlock(type="image" | "resource_link", uri=str(uri)):
            texts.append(_link(uri, block.name))
        case PromptBlock(type="resource", resource=_EmbeddedResource(uri=uri, text=str(text))):
            texts.append(_link(uri, None))
            files.append(f'<context uri="{uri}">\n{text}\n</context>')
        case PromptBlock(type="resource", resource=_EmbeddedResource(uri=uri, blob=str(blob), mime_type=kind)):
            if str(kind).startswith("image/"):
                images.append(_image(blob, kind))
            texts.append(_link(uri, None))
        case PromptBlock(type="audio"):
            raise ValueError("type: audio is not taken")
        case PromptBlock(type="text" | "image" | "resource_link" | "resource"):
            raise ValueError(f"type: a block of type {block.type} lacks the member that holds its content")
        case _:
            raise ValueError(f"type: unknown type {block.type[:100]!r}")


def _image(data: str, mime_type: Any) -> dict[str, str]:
    return {"data": data, "mimeType": mime_type if isinstance(mime_type, str) else "image/png"}


def _link(uri: str, name: str | None) -> str:
    """A local file by its path, which is what tools take; anything else by its address."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        place = unquote(parts.path)
        return f"{place}#{parts.fragment}" if parts.fragment else place
    return f"[{name}]({uri})" if name else uri
