"""Where sockets, tokens and data lie: whose they must be, and who is turned away."""

import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from doors.control.client_socket import connect
from doors.http.settings import HttpSettings
from doors.http.tokens import TOKEN_FILE, load_grants
from doors.locations import make_private_dir
from errors import UsageError
from tests.acceptance.supervisor import running_supervisor
from tests.security.people import NOBODY, as_nobody, needs_root, run_python
from wire.tokens import read_token

CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(10)
    try:
        connection.connect(sys.argv[1])
    except OSError as exc:
        print(type(exc).__name__)
    else:
        try:
            connection.sendall(b'{"id": 1, "method": "status"}\\n')
        except BrokenPipeError:
            pass  # turned away already; why can still be read
        print(connection.makefile().readline())
"""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.process
def test_s1_all_that_a_supervisor_makes_is_its_owners_alone_with_any_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    data = tmp_path / "some" / "data"
    (tmp_path / "pool.toml").write_text('http.bind = "127.0.0.1:0"\n')
    open_to_all = ("sh", "-c", 'umask 0; exec "$@"', "sh")
    config = ("--config", str(tmp_path / "pool.toml"), "--max", "1")
    with running_supervisor(data, *config, wrapper=open_to_all) as supervisor:
        assert (mode_of(supervisor.socket), mode_of(supervisor.socket.parent)) == (0o600, 0o700)
        assert supervisor.prompt("a", 'TOOL:write {"path":"made.txt","content":"x"}')
        found = {}
        for path in (data.parent, *data.parent.rglob("*")):
            with suppress(FileNotFoundError):  # a temporary file has been put in its place by now
                found[path.relative_to(tmp_path)] = path.lstat()
    modes = {str(path): stat.filemode(status.st_mode) for path, status in found.items()}
    open_ones = {path: mode for path, mode in modes.items() if not mode.endswith("------")}
    assert open_ones == {}
    assert {status.st_uid for status in found.values()} == {os.geteuid()}
    names = {path.name for path in found}
    assert {"pool.db", "pool.db-wal", "workers.json", "supervisor.lock", "http-token", "control.sock"} <= names
    assert "made.txt" in names
    assert [path for path in found if path.suffix == ".jsonl"]


@needs_root
@pytest.mark.process
def test_s2_another_user_is_turned_away_even_where_the_modes_would_let_it_in() -> None:
    with tempfile.TemporaryDirectory() as place, running_supervisor(Path(place, "data"), "--max", "1") as supervisor:
        assert as_nobody(CONNECT, str(supervisor.socket)) == "PermissionError"
        for path, mode in ((Path(place), 0o755), (supervisor.socket.parent, 0o755), (supervisor.socket, 0o777)):
            path.chmod(mode)
        answer = as_nobody(CONNECT, str(supervisor.socket))
        assert "this supervisor serves another user" in answer
        assert "workers" not in answer
        assert "workers" in run_python(CONNECT, str(supervisor.socket))


@needs_root
def test_s3_a_command_asks_nothing_of_a_listener_that_is_another_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0o777)
        connect(path).close()  # root may ask anybody: it is root who listens here
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY + 1)
        connect(path).close()  # and root is trusted by everybody
        monkeypatch.setattr("doors.control.client_socket.peer_credentials", lambda _connection: (1, NOBODY))
        with pytest.raises(UsageError, match="belongs to another user"):
            connect(path)


@needs_root
def test_s4_a_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    make_private_dir(theirs)
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(UsageError, match="belongs to another user"):
        make_private_dir(theirs)


def test_s4_a_directory_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    for mode in (0o770, 0o777, 0o722):
        tmp_path.chmod(mode)
        with pytest.raises(UsageError, match="can be written by others"):
            make_private_dir(tmp_path)


TOKEN = "a-token-that-somebody-else-knows"


@needs_root
def test_s5_a_token_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    assert read_token(path) == TOKEN
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(UsageError, match="belongs to another user"):
        read_token(path)


def test_s5_a_token_file_that_is_none_or_that_others_may_use_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UsageError, match="no regular file"):
        read_token(tmp_path / "pipe")
    (tmp_path / "token").write_text(TOKEN)
    for mode in (0o640, 0o604, 0o620, 0o602):
        (tmp_path / "token").chmod(mode)
        with pytest.raises(UsageError, match="chmod 600"):
            read_token(tmp_path / "token")


def test_s6_a_link_to_nothing_in_the_place_of_the_token_is_told_of_and_stays(tmp_path: Path) -> None:
    path = tmp_path / TOKEN_FILE
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="cannot read the token file"):
        load_grants(HttpSettings(), {}, tmp_path)
    assert path.is_symlink()
    assert not (tmp_path / "nowhere").exists()
