"""A real sshd on loopback with keys, settings and a port of its own, and what ssh has to know to be let in."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
_CLIENT = """
Host node-*
  HostName 127.0.0.1
  Port {port}
  IdentityFile {directory}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {directory}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""


class Sshd:
    """The server; ``options`` are those with which ssh reaches it as ``node-ANYTHING``."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self.options = ("-F", str(directory / "ssh_config"))
        (directory / "ssh_config").write_text(_CLIENT.format(directory=directory, port=port))
        (directory / "sshd_config").write_text(_SERVER.format(directory=directory, port=port))
        self._address = f"[127.0.0.1]:{port}"
        self.know("host_key.pub")

    def know(self, key: str | None) -> None:
        """Let this be all that the client knows of the server's key: the contents of a file, or nothing."""
        known = "" if key is None else f"{self._address} {(self._directory / key).read_text()}"
        (self._directory / "known_hosts").write_text(known)


@contextmanager
def sshd(directory: Path) -> Iterator[Sshd]:
    """Start one; it has ended after the block. Skips, aloud, where none can be used; in CI one must be."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin")
    refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
    if program is None or shutil.which("ssh") is None:
        refuse("ssh and sshd (of OpenSSH) are not installed")
    if pwd.getpwuid(os.geteuid()).pw_shell.endswith(("/nologin", "/false")):
        refuse("this user may not log in: its shell runs no command")
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)], check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it locks its unprivileged part in
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = Sshd(directory, port)
        command = [program, "-D", "-e", "-f", str(directory / "sshd_config")]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        with process, process.stderr as lines:
            said = ""
            for line in lines:
                said += line
                if "Server listening" in line:
                    try:
                        yield server
                    finally:
                        process.terminate()
                    return
        assert "Address already in use" in said, said  # another process was faster: another port
