"""The dashboard's files, read once into memory: what is not among them cannot be asked for, whatever a path says."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["Asset", "load_assets"]

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file as it is sent. ``etag`` is quoted, made of the content."""

    body: bytes
    media_type: str
    etag: str


def load_assets(folder: Traversable | None = None) -> Mapping[str, Asset]:
    """Every file of the folder (default: ``static``) that a browser may have, by name; others are left out."""
    there = folder or files("doors.dashboard") / "static"
    found = {entry.name: _load(entry) for entry in there.iterdir() if entry.is_file() and _suffix(entry.name) in _TYPES}
    return MappingProxyType(found)


def _load(entry: Traversable) -> Asset:
    body = entry.read_bytes()
    return Asset(body, _TYPES[_suffix(entry.name)], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _suffix(name: str) -> str:
    return name[name.rfind(".") :] if "." in name else ""
