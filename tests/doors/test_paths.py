"""Where the control socket lies."""

from pathlib import Path

import pytest

from doors.locations import MAX_SOCKET_PATH_BYTES, check_socket_path, make_private_dir, resolve_socket
from errors import UsageError

DATA = Path("/data")


def test_the_socket_is_looked_for_in_order() -> None:
    env = {"POOL_SOCKET": "/env.sock", "XDG_RUNTIME_DIR": "/run/user/1"}
    assert resolve_socket("/flag.sock", env, "/set.sock", DATA) == Path("/flag.sock")
    assert resolve_socket(None, env, "/set.sock", DATA) == Path("/env.sock")
    del env["POOL_SOCKET"]
    assert resolve_socket(None, env, "/set.sock", DATA) == Path("/set.sock")
    assert resolve_socket(None, env, None, DATA).parent == Path("/run/user/1/pool")
    assert resolve_socket(None, {}, None, DATA) == Path("/data/control.sock")


def test_an_empty_text_counts_as_absent() -> None:
    env = {"POOL_SOCKET": "", "XDG_RUNTIME_DIR": ""}
    assert resolve_socket("", env, "", DATA) == Path("/data/control.sock")


def test_each_data_directory_has_its_own_socket_in_the_runtime_directory_by_whatever_name_it_goes(
    tmp_path: Path,
) -> None:
    env = {"XDG_RUNTIME_DIR": "/run/user/1"}
    (tmp_path / "link").symlink_to(tmp_path)
    one = resolve_socket(None, env, None, tmp_path)
    assert one == resolve_socket(None, env, None, tmp_path / "link")
    assert one != resolve_socket(None, env, None, tmp_path / "other")


def test_a_named_socket_is_absolute_and_knows_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.chdir("/")
    assert resolve_socket("~/p.sock", {}, None, DATA) == Path("/home/someone/p.sock")
    assert resolve_socket("p.sock", {}, None, DATA) == Path("/p.sock")


def test_a_path_the_kernel_would_refuse_is_refused_with_a_hint() -> None:
    longest = Path("/" + "x" * (MAX_SOCKET_PATH_BYTES - 1))
    check_socket_path(longest)
    with pytest.raises(UsageError, match=r"108 bytes and sockets allow 107; name a shorter one with --socket"):
        check_socket_path(Path(f"{longest}x"))
    with pytest.raises(UsageError, match="108 bytes"):
        check_socket_path(Path("/" + "é" * 53 + "x"))


def test_a_private_directory_is_made_with_mode_0700(tmp_path: Path) -> None:
    make_private_dir(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_directory_that_others_can_write_is_refused_unless_it_is_sticky(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(UsageError, match=f"chmod go-w {shared}"):
        make_private_dir(shared)
    shared.chmod(0o1777)
    make_private_dir(shared)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot make the directory"):
        make_private_dir(tmp_path / "file" / "dir")
