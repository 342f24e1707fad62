"""What ssh is asked for a node, and what its end means, in words that say what to do. Pure."""

import shlex
from typing import NamedTuple

from cluster.settings import NodeSettings
from rpc.transport import ExitStatus
from wire.terminal import clean

_FIRST = ("BatchMode=yes", "ClearAllForwardings=yes", "ControlMaster=no", "ControlPath=none", "PermitLocalCommand=no")
"""Options before those of the settings, since of two the first counts: no questions, no ports, no shared connection."""
_FLAGS = ("-T", "-a", "-x")
"""Flags after those of the settings, since of two the last counts: no terminal, no agent, no X11."""
_DEFAULTS = ("ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=2")
_SSH_FAILED = 255
_SHELL_FAILED = (126, 127)
_SHOWN_LINES, _SHOWN_CHARS = 3, 1000


class SshNode(NamedTuple):
    """A node that ssh reaches, with its table of the settings."""

    name: str
    settings: NodeSettings

    @property
    def host(self) -> str:
        """As ssh takes it, from its own settings too."""
        return self.settings.ssh

    @property
    def key(self) -> str:
        """Where it stands in the settings."""
        return f"cluster.nodes.{self.name}"


def ssh_argv(node: SshNode, remote: tuple[str, ...]) -> list[str]:
    """The ssh that runs ``remote`` on the node, each of its words unchanged by the shell there."""
    first = [f"-o{option}" for option in _FIRST]
    defaults = [f"-o{option}" for option in _DEFAULTS]
    return ["ssh", *first, *node.settings.options, *_FLAGS, *defaults, "--", node.host, shlex.join(remote)]


def node_argv(node: SshNode, name: str) -> list[str]:
    """The ssh that carries the link of the node program, which calls itself ``name``."""
    return ssh_argv(node, (*node.settings.command, "--stdio", "--name", name))


class SshProblem(NamedTuple):
    """What is wrong with a link over ssh; ``fix``: what to do, "" where that is not known."""

    found: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.found}; {self.fix}" if self.fix else self.found


def end_of_ssh(node: SshNode, status: ExitStatus, stderr: str) -> SshProblem:
    """Why the link is over. ``stderr``: the last that ssh and the node program wrote there."""
    said = _last_lines(stderr)
    if status.signal is not None:
        return SshProblem(f"ssh {node.host} was {status}")
    if status.code == _SSH_FAILED:
        return SshProblem(f"ssh {node.host}: {said or 'the connection ended'}", _remedy(node, stderr))
    if status.code in _SHELL_FAILED:
        fix = f"set {node.key}.command to where pool is there (a path from the home directory, or a whole one)"
        return SshProblem(f"{node.host} cannot run {node.settings.command[0]}: {said or 'it is not found'}", fix)
    return SshProblem(f"the node program on {node.host} {status}: {said or 'it said nothing'}")


def words_before(node: SshNode, data: bytes) -> SshProblem | None:
    """What is wrong with first bytes that no node program writes; None for those of one."""
    if data[:1] in (b"", b"\0"):
        return None  # a frame begins with its length, of which the highest byte is 0
    shown = clean(data[:80].decode("utf-8", "replace").strip())
    fix = "let the start files of the shell there (.bashrc) print nothing where it is not interactive"
    return SshProblem(f'{node.host} writes something before its node program does, "{shown}"', fix)


def _last_lines(stderr: str) -> str:
    lines = [line.strip().rstrip(".") for line in stderr.splitlines() if line.strip(" @\t\r")]
    return clean("; ".join(lines[-_SHOWN_LINES:]))[-_SHOWN_CHARS:]


def _remedy(node: SshNode, stderr: str) -> str:
    """What to do about a failure of ssh itself, where its words show that."""
    by_hand = shlex.join(["ssh", *node.settings.options, node.host])
    if "HOST IDENTIFICATION HAS CHANGED" in stderr:
        return "if the new key is right, remove the old one with ssh-keygen -R"
    if "Host key verification failed" in stderr:
        return f"look at its key and accept it once, as the user of the supervisor: {by_hand}"
    if "Permission denied" in stderr:
        return f"it has to work without a question, with a key in a file or in ssh-agent: {by_hand}"
    if "Could not resolve hostname" in stderr:
        return f"correct {node.key}.ssh, or name the host in ssh's own settings"
    if any(sign in stderr for sign in ("Connection refused", "timed out", "No route to host")):
        return f"look whether it is up and sshd listens there: {by_hand}"
    return ""
