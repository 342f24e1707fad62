"""Is the file sound enough to be opened? What its first bytes tell, and setting it aside when it is not."""

import os
import time
from pathlib import Path

__all__ = ["burden_aside", "damage_in_headers", "journal", "set_aside", "sidecars"]

_MAGIC = b"SQLite format 3\0"
_LOG_MAGICS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEADER_BYTES = 32
_HEADER_BYTES = 100
_VERSIONS = {1, 2}
_FEW_ASIDE = 3


def sidecars(path: Path) -> tuple[Path, Path]:
    """The write-ahead log and the shared-memory file that belong to a database."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def journal(path: Path) -> Path:
    """What SQLite would play back before it opens a database, were it there; the store itself never has one."""
    return path.with_name(f"{path.name}-journal")


def damage_in_headers(path: Path) -> str | None:
    """What is wrong with a file that exists, as far as headers and sizes tell; None = nothing. Raises OSError.

    A log that begins with zeros, or ends too early, is what a power cut leaves behind: SQLite copes with that.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
    log = _read_log_header(sidecars(path)[0])
    if log.strip(b"\0") and not log.startswith(_LOG_MAGICS):
        return "its write-ahead log is not one"
    if not header and not log:
        return "it is empty"
    if header and not header.startswith(_MAGIC):
        return "it is not an SQLite file"
    if len(header) == _HEADER_BYTES and not _VERSIONS.issuperset(header[18:20]):
        return "its header names a format that SQLite does not have"
    if header and not log and size < _size_in(header):
        return f"it is cut off: {size} bytes of {_size_in(header)}"
    return None


def _read_log_header(log: Path) -> bytes:
    try:
        with log.open("rb") as file:
            return file.read(_LOG_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def _size_in(header: bytes) -> int:
    page = int.from_bytes(header[16:18], "big")
    return (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")


def set_aside(path: Path, now: float) -> Path:
    """Rename the file with its sidecars, so that SQLite can still open it there; returns its new path."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    place = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while place.exists():
        number += 1
        place = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    for source, target in zip(sidecars(path), sidecars(place), strict=True):
        if source.exists():
            source.rename(target)
    path.rename(place)
    return place


def burden_aside(path: Path) -> str | None:
    """What the files set aside take, once they are more than three; None = not worth a word.

    None is ever removed by itself. Where a disk damages one file after the other, the oldest is the one that still
    holds everything, and the later ones next to nothing: keeping the latest few would throw away the only one of worth.
    """
    start = f"{path.name}.damaged-"
    kept = [file for file in path.parent.iterdir() if file.name.startswith(start)]
    files = sum(not file.name.endswith(("-wal", "-shm")) for file in kept)
    if files <= _FEW_ASIDE:
        return None
    size = sum(file.lstat().st_size for file in kept)
    return f"{files} damaged files are kept, {size / 1024**2:.1f} MiB in all; remove those that nobody needs"
