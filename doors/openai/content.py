"""The content of messages: their text, and the images in them as data URLs. Pure."""

import base64
import binascii
import re

from doors.openai.requests import ChatMessage, Part
from errors import UsageError
from wire.messages import ImageContent

__all__ = ["MOST_IMAGES", "Pictures", "text_of"]

MOST_IMAGES = 32
_DATA_URL = re.compile(r"data:(image/[A-Za-z0-9.+-]{1,40});base64,")


class Pictures:
    """The images of a prompt, in the order in which they are met."""

    def __init__(self) -> None:
        self.found: list[ImageContent] = []

    def add(self, part: Part, where: str) -> str:
        """Take an image in; what stands in the text for it. Raises UsageError."""
        url = part.image_url if isinstance(part.image_url, str) else part.image_url.url if part.image_url else ""
        head = _DATA_URL.match(url)
        if head is None:
            text = "images are passed as data URLs (data:image/png;base64,...); an image elsewhere is not fetched"
            raise UsageError(f"{where}: {text}", param=where)
        data = url[head.end() :]
        try:
            base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise UsageError(f"{where}: what should be base64 is none: {exc}", param=where) from exc
        if len(self.found) == MOST_IMAGES:
            raise UsageError(f"{where}: a request has at most {MOST_IMAGES} images", param=where)
        self.found.append(ImageContent(data=data, mime_type=head[1]))
        return f"[image {len(self.found)}]"


def text_of(message: ChatMessage, place: str, pictures: Pictures | None, *, marks: bool = True) -> str:
    """All that a message says; where ``pictures`` is None it may hold no images. ``place``: where in the request it is.

    ``marks``: say in the text where an image stood. Raises UsageError for parts of another kind.
    """
    if not isinstance(message.content, list):
        return message.content or ""
    texts = []
    for index, part in enumerate(message.content):
        where = f"{place}.content[{index}]"
        match part.type:
            case "text":
                texts.append(part.text)
            case "refusal":
                texts.append(part.refusal)
            case "image_url" if pictures is not None:
                mark = pictures.add(part, where)
                texts += [mark] if marks else []
            case "image_url":
                raise UsageError(f"{where}: images stand in messages of the user only", param=where)
            case _:
                problem = f"parts of type {part.type[:50]!r} are not understood; there are: text, image_url"
                raise UsageError(f"{where}: {problem}", param=where)
    return "\n".join(texts)
