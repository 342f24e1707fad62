"""Time zones by their IANA names, and the one that this machine's clock goes by."""

import os
from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from errors import UsageError

__all__ = ["machine_zone", "zone_named"]

_LONGEST = 64
_LOCALTIME = Path("/etc/localtime")


def zone_named(name: str, local: tzinfo) -> tzinfo:
    """The zone of that name; ``local`` for an empty one. Raises UsageError for a name that means none."""
    if not name:
        return local
    if name.upper() == "UTC":
        return UTC
    try:
        return _zone(name)
    except (KeyError, ValueError, OSError) as exc:  # unknown; no name of a file below the database; a directory
        raise UsageError(
            f'tz = {name[:_LONGEST]!r} is no time zone of this machine; write an IANA name such as "Europe/Berlin"'
        ) from exc


def machine_zone(env: Mapping[str, str] = os.environ, localtime: Path = _LOCALTIME) -> tzinfo:
    """The zone of ``$TZ``, else of ``/etc/localtime``, else UTC: as the C library has it."""
    named = env.get("TZ", "").removeprefix(":")
    try:
        if named:
            return _zone(named)
        with localtime.open("rb") as file:
            return ZoneInfo.from_file(file, key=str(localtime))
    except (KeyError, ValueError, OSError):
        return UTC


def _zone(name: str) -> ZoneInfo:
    if len(name) > _LONGEST:
        msg = "longer than any name of a zone"
        raise ValueError(msg)
    return ZoneInfo(name)
