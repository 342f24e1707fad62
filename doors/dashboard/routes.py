"""``GET /`` and ``GET /assets/NAME``: the dashboard's files, read once into memory; their data needs a token."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from doors.http.errors import HttpError
from doors.http.services import HttpServices, RouteSpec
from wire.events import EventType

_MEDIA_TYPES = {
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
    bodies = {entry.name: entry.read_bytes() for entry in there.iterdir() if entry.is_file()}
    if folder is None:
        displays = msgspec.json.encode({str(type_): type_.display for type_ in EventType})
        text = b"// How each type of event is shown.\n\nexport const DISPLAYS = %b;\n"
        bodies["event_displays.js"] = text % displays
    assets = {}
    for name, body in bodies.items():
        media_type = _MEDIA_TYPES.get(PurePath(name).suffix)
        if media_type is not None:
            assets[name] = Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return MappingProxyType(assets)


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No script or style but our files, no other server, no frame around it, and no way to make markup out of text."""

_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
}


def routes(_services: HttpServices) -> Sequence[RouteSpec]:
    """The page and its files. They hold nothing secret: the page asks for a token."""
    endpoint = partial(_answer, load_assets())
    return [RouteSpec("/", endpoint, None), RouteSpec("/assets/{name}", endpoint, None)]


async def _answer(assets: Mapping[str, Asset], request: Request) -> Response:
    found = assets.get(request.path_params.get("name", "index.html"))
    if found is None:
        raise HttpError(HTTPStatus.NOT_FOUND, "the dashboard has no such file")
    headers = {**_HEADERS, "etag": found.etag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if found.etag in known or "*" in known:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)
