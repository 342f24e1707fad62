"""The dashboard's files as they are sent: their types, what a browser may do with them, that there are no others."""

import re
from pathlib import Path

import pytest

from doors.dashboard import routes as dashboard
from doors.dashboard.routes import CONTENT_SECURITY_POLICY, load_assets
from doors.http import routes
from tests.doors.http.conftest import Door, Open, open_door

__all__ = ["open_door"]

ASSETS = load_assets()
SOURCES = {name: asset.body.decode() for name, asset in ASSETS.items()}


def test_every_file_has_the_type_that_browsers_insist_on() -> None:
    types = {Path(name).suffix: asset.media_type.partition(";")[0] for name, asset in ASSETS.items()}
    assert types == {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def test_only_what_a_browser_is_to_have_is_loaded_with_the_tag_of_its_content(tmp_path: Path) -> None:
    for name, text in (("a.js", "1"), ("b.js", "1"), ("c.js", "2"), ("notes.py", "secret = 1"), ("noname", "")):
        (tmp_path / name).write_text(text)
    (tmp_path / "folder.js").mkdir()
    tags = {name: asset.etag for name, asset in load_assets(tmp_path).items()}
    assert sorted(tags) == ["a.js", "b.js", "c.js"]
    assert tags["a.js"] == tags["b.js"] != tags["c.js"]


def test_what_a_file_names_is_there() -> None:
    named = {name for text in SOURCES.values() for name in re.findall(r'"(?:/assets|\.)/([\w.-]+)"', text)}
    assert named <= set(ASSETS)
    assert set(ASSETS) - named == {"index.html"}


@pytest.mark.parametrize("name", sorted(ASSETS))
def test_no_file_has_inline_code_or_makes_markup_out_of_text_or_names_another_server(name: str) -> None:
    text = SOURCES[name]
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment"
    assert re.findall(sinks, text) == []
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", text) == []
    assert {url for url in re.findall(r"https?://[^\"'\s]+", text) if "www.w3.org" not in url} == set()


def test_every_module_says_first_what_it_is_for_and_can_be_read_in_one_go() -> None:
    for name, text in SOURCES.items():
        assert not name.endswith((".js", ".css")) or text[:2] in ("//", "/*"), name
        assert len(text.splitlines()) <= 400, name


@pytest.fixture
async def door(open_door: Open, monkeypatch: pytest.MonkeyPatch) -> Door:
    monkeypatch.setattr(routes, "DOORS", (dashboard.routes,))
    return await open_door()


async def test_the_page_and_its_files_come_to_everybody_with_a_strict_policy(door: Door) -> None:
    for path, name in (("/", "index.html"), ("/assets/main.js", "main.js"), ("/assets/icon.svg", "icon.svg")):
        status, headers, body = await door.call("GET", path, token=None)
        assert (status, body) == (200, ASSETS[name].body)
        assert headers["content-type"] == ASSETS[name].media_type
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-cache")
        assert "set-cookie" not in headers
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "connect-src 'self'" in CONTENT_SECURITY_POLICY


async def test_a_browser_that_has_a_file_is_sent_none(door: Door) -> None:
    etag = (await door.call("GET", "/assets/main.js", token=None)).headers["etag"]
    for known in (etag, f'"other", W/{etag}', "*"):
        status, again, body = await door.call("GET", "/assets/main.js", token=None, if_none_match=known)
        assert (status, body, again["etag"]) == (304, b"", etag)
    assert (await door.call("GET", "/assets/main.js", token=None, if_none_match='"other"')).status == 200


async def test_no_path_leads_out_of_the_dashboards_files(door: Door) -> None:
    for path in (
        *("/assets/", "/assets/../routes.py", "/assets/%2e%2e/routes.py", "/assets/..%2froutes.py"),
        *("/assets/....//routes.py", "/assets/..%5croutes.py", "/assets//etc/passwd", "/assets/%2fetc%2fpasswd"),
        *("/assets/main.js%00.css", "/assets/routes.py", "/../../etc/passwd", "/index.html"),
    ):
        status, _, body = await door.call("GET", path, token=None)
        assert status in (400, 404), path
        assert b"import" not in body
        assert b"root:" not in body


async def test_a_page_of_another_name_for_this_machine_gets_nothing(door: Door) -> None:
    answer = await door.call("GET", "/", token=None, host="attacker.example")
    assert answer.status == 421
    assert b"<html" not in answer.body
