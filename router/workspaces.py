"""Working directories of agents by role, and file names that no two texts share."""

import hashlib
import os
import re
from pathlib import Path

import msgspec

from errors import UsageError
from profiles import ProfilesSettings, workspace_of
from router.settings import RouterSettings
from wire.files import WORKSPACES_DIR

_NAMES = {ord(":"): "+"} | {byte: chr(byte) for byte in b"abcdefghijklmnopqrstuvwxyz0123456789-_"}
_MAX_LENGTH = 160
_TRUNCATED_LENGTH = 80
_EMPTY = "%"


def file_name(text: str) -> str:
    """A name of lower-case ASCII, 1 to 160 characters, that only this text has.

    ``a-z0-9_-`` stay, ``:`` becomes ``+``, every other byte of the UTF-8 form ``%`` and two digits: no letter case and
    no Unicode normalisation of a file system can make two names one. What would be longer than most file systems allow
    is cut, and made unique by its SHA-256 behind a ``~``.
    """
    data = text.encode("utf-8", "surrogatepass")
    name = "".join(_NAMES.get(byte, f"%{byte:02x}") for byte in data) or _EMPTY
    return name if len(name) <= _MAX_LENGTH else f"{name[:_TRUNCATED_LENGTH]}~{hashlib.sha256(data).hexdigest()}"


_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PRIVATE_DIRECTORIES = ("sessions", "by-session", "agent-dirs")
"""Directories in the data directory that hold what one agent, or one conversation, must not see of others."""


class WorkspaceDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Which working directory, and the setting it comes from."""

    path: str
    """``~`` expanded; absolute unless the setting is relative to where the supervisor was started."""
    shared: str
    """The directory that the setting names: ``path``, or the one around it where each session has its own."""
    source: str
    """Path of the setting; ``default`` for the role's directory in the data directory."""


def find_workspace(
    settings: RouterSettings,
    profiles: ProfilesSettings,
    agent: str,
    role: str,
    data_dir: Path,
    *,
    session: str | None = None,
) -> WorkspaceDecision:
    """The working directory of an agent in a role; nothing is made, nothing on the disk is looked at.

    ``session``: whose it is, for an agent whose sessions have a directory each; without it the one around these.
    Raises UsageError for an unknown agent or role, and for a directory inside one that is kept private.
    """
    configured = workspace_of(profiles, agent, role)
    if named := settings.workspace_dirs.get(role):
        finding = _configured(named, f"router.workspace_dirs.{role}")
    elif configured is not None:
        by_role = role in profiles.roles and profiles.roles[role].workspace
        finding = _configured(configured, f"roles.{role}.workspace" if by_role else f"agents.{agent}.workspace")
    else:
        name = role if _PLAIN_NAME.fullmatch(role) else file_name(role)
        path = str(data_dir / WORKSPACES_DIR / name)
        finding = WorkspaceDecision(path=path, shared=path, source="default")
    _check_not_private(os.path.normpath(finding.path), os.path.normpath(data_dir), finding)
    if session is None or not profiles.has_workspace_per_session(agent):
        return finding
    return msgspec.structs.replace(finding, path=str(Path(finding.shared, file_name(session))))


_MAX_DIRECTORY = 4_096


def check_directory(path: str, data_dir: Path) -> str:
    """A directory that a front end has chosen for a session, without links.

    Raises UsageError: it is not absolute, too long, not there, no directory, or inside one that is kept private.
    """
    if not path.startswith("/") or "\0" in path or len(path) > _MAX_DIRECTORY:
        raise UsageError(f"a session works in an absolute path of at most {_MAX_DIRECTORY:,} characters")
    found = os.path.realpath(path)
    if not Path(found).is_dir():
        raise UsageError(f"there is no directory {path}")
    _check_not_private(found, os.path.realpath(data_dir), WorkspaceDecision(path=path, shared=path, source="cwd"))
    return found


def workspace_problem(finding: WorkspaceDecision) -> str | None:
    """What keeps an agent from working there; None = nothing does. Looks, and makes nothing."""
    path = Path(finding.path)
    if finding.source == "default":
        return None
    if path.exists() and not path.is_dir():
        return "is no directory"
    if not path.exists() and not path.parent.is_dir():
        return f"cannot be made: there is no directory {path.parent}"  # only the last level is made
    place = path if path.exists() else path.parent
    return None if os.access(place, os.W_OK | os.X_OK) else f"cannot be used: no right to write in {place}"


def make_workspace(
    settings: RouterSettings,
    profiles: ProfilesSettings,
    agent: str,
    role: str,
    data_dir: Path,
    *,
    session: str | None = None,
    is_left_to_host: bool = False,
) -> str:
    """The same directory, there from now on: made with mode 0700 when missing.

    ``is_left_to_host``: nothing is made, as the machine that a worker starts on sees to it (``rpc.preparation``).

    Of a configured one only the last level is made: a misspelt path should be noticed. Raises UsageError also when it
    is no directory, cannot be made, or lies by a symbolic link inside a directory that is kept private; and when a
    session's own directory is a symbolic link, which another session may have put there.
    """
    finding = find_workspace(settings, profiles, agent, role, data_dir, session=session)
    path, shared = Path(finding.path), Path(finding.shared)
    _check_not_private(os.path.realpath(shared), os.path.realpath(data_dir), finding)
    if is_left_to_host:
        return finding.path
    try:
        if finding.source == "default":
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            shared.parent.mkdir(mode=0o700, exist_ok=True)
        shared.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        raise UsageError(
            f"the workspace {path} of role {role} cannot be made: {exc.strerror} ({finding.source})"
        ) from exc
    if path != shared and path.is_symlink():
        raise UsageError(f"the workspace {path} of session {session} is a symbolic link; remove it", session=session)
    return finding.path


def _configured(path: str, source: str) -> WorkspaceDecision:
    if "\0" in path:
        raise UsageError(f"{source} holds a NUL character; it is no path")
    path = os.path.expanduser(path)  # noqa: PTH111  # Path's raises without HOME
    return WorkspaceDecision(path=path, shared=path, source=source)


def _check_not_private(path: str, data_dir: str, finding: WorkspaceDecision) -> None:
    for name in _PRIVATE_DIRECTORIES:
        private = Path(data_dir, name)
        if Path(path).is_relative_to(private):
            raise UsageError(
                f"the workspace {finding.path} ({finding.source}) lies in {private}, where transcripts and files of "
                "other conversations are; choose another directory"
            )
