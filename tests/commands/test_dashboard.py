"""``pool dashboard``: the link with the token, and a browser that is not given the token as an argument."""

import stat
from pathlib import Path
from typing import Any

import pytest

from tests.commands.documents import DOCUMENT
from tests.commands.fake_pool import Bench

TOKEN = "a-token_of-32-chars-that-is-known"


def serve(bench: Bench, folder: Path, token_path: Path | None) -> None:
    http = {"url": "http://127.0.0.1:8765", "token_path": None if token_path is None else str(token_path)}
    supervisor = {**DOCUMENT["supervisor"], "data_dir": str(folder), "http": http}
    bench.pool.fixed = {"status": {**DOCUMENT, "supervisor": supervisor}}


def test_the_link_has_the_token_of_the_supervisors_file(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "http-token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    serve(bench, tmp_path, file)
    assert bench.run("dashboard").stdout == f"http://127.0.0.1:8765/#token={TOKEN}\n"
    assert bench.json("dashboard") == {"url": f"http://127.0.0.1:8765/#token={TOKEN}"}


def test_a_token_of_the_settings_or_the_environment_is_found_there(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(bench, tmp_path, None)
    settings = tmp_path / "pool.toml"
    settings.write_text("")
    lacking = bench.run("dashboard", "--config", str(settings))
    assert (lacking.exit_code, "set $POOL_HTTP_TOKEN here too" in lacking.stderr) == (2, True)
    settings.write_text('[http]\ntoken = "a-token-of-the-settings"\n')
    assert bench.run("dashboard", "--config", str(settings)).stdout.endswith("#token=a-token-of-the-settings\n")
    monkeypatch.setenv("POOL_HTTP_TOKEN", "a/token of the environment")
    assert bench.run("dashboard").stdout.endswith("#token=a%2Ftoken%20of%20the%20environment\n")


def test_settings_that_are_not_named_give_no_token_for_a_socket_that_is(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(bench, tmp_path, None)
    (tmp_path / "pool.toml").write_text('[http]\ntoken = "a-token-of-another-one"\n')
    monkeypatch.chdir(tmp_path)
    result = bench.run("dashboard")  # names the socket
    assert (result.exit_code, result.stdout) == (2, "")
    assert "set $POOL_HTTP_TOKEN, or name the settings (--config)" in result.stderr


def test_a_token_that_is_in_no_file_is_not_put_into_one(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(bench, tmp_path, None)
    monkeypatch.setenv("POOL_HTTP_TOKEN", TOKEN)
    monkeypatch.setattr("webbrowser.open", lambda _url: True)
    refused = bench.run("dashboard", "--open")
    assert (refused.exit_code, TOKEN in refused.stdout) == (1, True)
    assert "open the link yourself" in refused.stderr
    assert not (tmp_path / "dashboard.html").exists()


def test_without_the_http_door_it_says_how_to_have_one(bench: Bench) -> None:
    result = bench.run("dashboard")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pool config set http.bind 127.0.0.1:8765" in result.stderr


def test_the_browser_gets_a_private_page_instead_of_the_token(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browse(url: str, *_: Any) -> bool:
        opened.append(url)
        return len(opened) == 1

    monkeypatch.setattr("webbrowser.open", browse)
    file = tmp_path / "http-token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    serve(bench, tmp_path, file)
    assert bench.run("dashboard", "--open").exit_code == 0
    page = tmp_path / "dashboard.html"
    assert opened == [page.as_uri()]
    assert f"url=http://127.0.0.1:8765/#token={TOKEN}" in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    failed = bench.run("dashboard", "--open")
    assert (failed.exit_code, failed.stderr) == (1, "pool: no browser could be started; open the link yourself\n")
