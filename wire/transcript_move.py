"""The working directory in a transcript's header, after its data directory was copied or moved."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from wire.files import sync_directory
from wire.framing import DECODE_ERRORS
from wire.transcript_repair import MAX_ENTRY_BYTES, TranscriptError, open_locked


def move_working_directory(path: Path, moved: Callable[[str], str | None]) -> bool:
    """Have the header name ``moved`` of the directory that it names; whether that is another one.

    pi works where the header says, and refuses a directory that is gone. The file is replaced in one step. Raises
    TranscriptError, also as ``open_locked``; a file without a header stays as it is.
    """
    descriptor = open_locked(path)
    with os.fdopen(descriptor, "rb") as file:
        line = file.readline(MAX_ENTRY_BYTES)
        try:
            header = msgspec.json.decode(line, type=dict[str, Any])
        except DECODE_ERRORS:
            return False
        before = header.get("cwd")
        here = moved(before) if isinstance(before, str) else None
        if here is None or here == before:
            return False
        try:
            _replace_header(path, msgspec.json.encode({**header, "cwd": here}) + b"\n", file)
        except OSError as exc:
            raise TranscriptError(f"cannot change the transcript {path}: {exc.strerror}") from exc
    return True


def _replace_header(path: Path, header: bytes, rest: Any) -> None:
    draft = path.with_name(f".{path.name}.moved")
    draft.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as new:
            new.write(header)
            shutil.copyfileobj(rest, new)
            new.flush()
            os.fsync(new.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
