"""Images that a prompt names or holds: files of the workspace, and data URLs in the text.

A path is loaded when it ends like an image's, lies in the workspace with all links resolved, and holds an image; its
name stays in the text. A data URL is replaced in the text. A note tells why an image was not loaded; a path that does
not exist is only a word.
"""

import base64
import binascii
import errno
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from agent.tools.base import ToolError
from agent.tools.paths import ConfinedPath, image_type, open_regular
from wire.entries import ImageBlock

_ENDINGS = re.compile(r"\.(?:png|jpe?g|gif|webp)(?![\w.-]|/)", re.IGNORECASE)
_DATA_URL = re.compile(r"data:image/[A-Za-z0-9.+-]{1,30};base64,")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_OPENING_MARKS = {'"': '"', "'": "'", "`": "`", ")": "(", "]": "[", ">": "<"}
_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_WORD_BREAKS = re.compile(r"[\s\"'`()\[\]<>|]")


class ImageLimits(msgspec.Struct, frozen=True):
    """Images of one prompt: how many, bytes of one, bytes of all together; ``names``: words that are looked at."""

    count: int = 10
    one: int = 5 * 1024 * 1024
    together: int = 20 * 1024 * 1024
    names: int = 100


class PromptImages(msgspec.Struct, frozen=True):
    """The prompt as it goes to the model, its images, and a line for each one that was left out."""

    text: str
    images: list[ImageBlock]
    notes: list[str]


class _ImageRejected(Exception):
    """The message says why an image is left out."""


def may_name_images(text: str) -> bool:
    """Whether it is worth looking: touches no disk."""
    return _ENDINGS.search(text) is not None or _DATA_URL.search(text) is not None


def load_images(text: str, cwd: str, limits: ImageLimits | None = None) -> PromptImages:
    """Find and load them; ``cwd`` is a real path. Blocks on the disk, and may run in a thread. Linear in the text."""
    collected = _ImageSet(limits or ImageLimits())
    text = _extract_data_urls(text, collected)
    for name in _image_names(text, collected.limits.names):
        try:
            data = _read(name, cwd, collected.limits.one)
            if data is not None:
                collected.add(data)
        except _ImageRejected as exc:
            collected.notes.append(f"{name} was not loaded: {exc}")
    return PromptImages(text, collected.images, collected.notes)


class _ImageSet:
    """Images that fit within the limits."""

    def __init__(self, limits: ImageLimits) -> None:
        self.limits = limits
        self.images: list[ImageBlock] = []
        self.notes: list[str] = []
        self._bytes = 0

    def add(self, data: bytes) -> ImageBlock:
        """Add one. Raises _ImageRejected."""
        kind = image_type(data)
        if kind is None:
            raise _ImageRejected("it holds no PNG, JPEG, GIF or WebP image")
        if len(data) > self.limits.one:
            raise _ImageRejected(f"it is larger than {self.limits.one} bytes")
        if len(self.images) == self.limits.count:
            raise _ImageRejected(f"a prompt holds at most {self.limits.count} images")
        if self._bytes + len(data) > self.limits.together:
            raise _ImageRejected(f"the images of a prompt hold at most {self.limits.together} bytes")
        self._bytes += len(data)
        self.images.append(ImageBlock(base64.b64encode(data).decode(), kind))
        return self.images[-1]


def _extract_data_urls(text: str, collected: _ImageSet) -> str:
    parts: list[str] = []
    position = 0
    while match := _DATA_URL.search(text, position):
        body = _BASE64.match(text, match.end())
        assert body is not None  # noqa: S101 - it matches the empty string too
        parts += [text[position : match.start()], _extract_data_url(body[0], collected)]
        position = body.end()
    return "".join([*parts, text[position:]])


def _extract_data_url(body: str, collected: _ImageSet) -> str:
    try:
        image = collected.add(_decoded(body, collected.limits.one))
    except _ImageRejected as exc:
        collected.notes.append(f"an image in the text was not loaded: {exc}")
        return f"[image left out: {exc}]"
    return f"[image {len(collected.images)}: {image.mime_type}]"


def _decoded(body: str, limit: int) -> bytes:
    if len(body) > limit * 4 // 3 + 4:
        raise _ImageRejected(f"it is larger than {limit} bytes")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as exc:
        raise _ImageRejected("it is no base64") from exc


def _image_names(text: str, most: int) -> Iterator[str]:
    """Words that end like an image's name, each once: up to white space, or between the marks around them."""
    found = (_name_before(text, match.end()) for match in islice(_ENDINGS.finditer(text), most))
    yield from dict.fromkeys(name for name in found if "://" not in name)


def _name_before(text: str, end: int) -> str:
    before = text[max(0, end - 1024) : end].rpartition("\n")[2]
    opening = _OPENING_MARKS.get(text[end : end + 1])
    if opening is not None and opening in before:
        return before.rpartition(opening)[2].removeprefix("@")
    start = max((match.end() for match in _WORD_BREAKS.finditer(before)), default=0)
    return before[start:].removeprefix("@")


def _read(name: str, cwd: str, limit: int) -> bytes | None:
    """The file's bytes, at most one more than ``limit``; None when there is no such file. Raises _ImageRejected."""
    try:
        path = Path(os.path.realpath(os.path.join(cwd, name)))  # noqa: PTH118 - it joins and resolves without surprises
        if not path.is_relative_to(cwd):
            raise _ImageRejected("it lies outside the workspace")
        descriptor, _ = open_regular(ConfinedPath(cwd, path.relative_to(cwd).parts, name))
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor, not of a path
            return file.read(limit + 1)
    except ToolError as exc:
        raise _ImageRejected("it is no file") from exc
    except ValueError:
        return None  # a NUL: a word, and no path
    except OSError as exc:
        if exc.errno in _NO_SUCH_FILE:
            return None
        raise _ImageRejected(exc.strerror or "it cannot be read") from exc
