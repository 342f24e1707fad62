"""``GET /`` and ``GET /assets/NAME``: the dashboard's files, for everybody; what they show needs a token."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from doors.dashboard.assets import Asset, load_assets
from doors.http.openings import Opening
from doors.http.refusals import Refusal
from doors.http.services import Services

__all__ = ["PAGE", "POLICY", "routes"]

PAGE = "index.html"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No script or style but our files, no other server, no frame around it, and no way to make markup out of text."""

_HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
}


def routes(_services: Services) -> Sequence[Opening]:
    """The page and its files. They hold nothing secret: the page asks for a token."""
    assets = load_assets()

    async def page(request: Request) -> Response:
        return _answer(request, assets, PAGE)

    async def asset(request: Request) -> Response:
        return _answer(request, assets, str(request.path_params["name"]))

    return [Opening("/", page, None), Opening("/assets/{name}", asset, None)]


def _answer(request: Request, assets: Mapping[str, Asset], name: str) -> Response:
    found = assets.get(name)
    if found is None:
        raise Refusal(HTTPStatus.NOT_FOUND, "the dashboard has no such file")
    headers = {**_HEADERS, "etag": found.etag}
    if _is_known(request.headers.get("if-none-match", ""), found.etag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)


def _is_known(if_none_match: str, etag: str) -> bool:
    """Whether the browser has this content already; a tag may be marked as a weak one."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags
