"""What a file's first bytes say it is: an image a model can see, text, or neither; pure."""

__all__ = ["SAMPLE_BYTES", "image_type", "looks_binary"]

SAMPLE_BYTES = 8192
_ODD_SHARE = 0.1


def image_type(head: bytes) -> str | None:
    """The MIME type of an image in a format that models take, by its content and not its name."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def looks_binary(head: bytes) -> bool:
    """Whether it is no UTF-8 text: it has a NUL, or more than a tenth of it are controls or undecodable."""
    if b"\0" in head:
        return True
    text = head[:SAMPLE_BYTES].decode(errors="replace").removesuffix("\ufffd")  # the sample may end within a character
    odd = sum(1 for char in text if char == "\ufffd" or (char < " " and char not in "\t\n\r\f\v\b\x1b"))
    return odd > _ODD_SHARE * len(text)
