"""Finds the conversation that a front end's command line names: by session key, transcript path or conversation id."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import trio

from errors import UsageError
from gateway.requests import AttachRequest
from gateway.sessions.sessions import Sessions
from profiles import AgentSettings
from profiles.command_line import AgentFlags
from router.keys import normalize_session_key
from wire.files import open_regular
from wire.framing import DECODE_ERRORS

_HEAD_BYTES = 64 * 1024
_HEAD_LINES = 5
"""Programs may write other lines, such as a title, before the header."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{0,4}){0,3}(-[0-9a-f]{0,12})?")


class Transcript(msgspec.Struct, frozen=True):
    """One conversation on disk. ``cwd``: the directory in which it was begun."""

    path: str
    id: str
    cwd: str = ""


class _Header(msgspec.Struct):
    type: str = ""
    id: str = ""
    cwd: str = ""


_header_decoder = msgspec.json.Decoder(_Header)


def looks_like_id(text: str) -> bool:
    """Whether a name is a conversation's id or a prefix of one: at least 8 digits of a UUID."""
    return _ID.fullmatch(text) is not None


class IdPattern(msgspec.Struct, frozen=True):
    """The id of the conversation to find; a prefix unless ``exact``."""

    id: str
    exact: bool = False

    def is_in_name(self, path: str) -> bool:
        """Whether a file name, ``TIME_ID.jsonl``, has a matching id."""
        return f"_{self.id}{'.jsonl' if self.exact else ''}" in Path(path).name

    def matches(self, identity: str) -> bool:
        """Whether an id matches."""
        return identity == self.id or (identity.startswith(self.id) and not self.exact)


def find_transcripts(wanted: IdPattern, directories: Iterable[Path]) -> list[Transcript]:
    """The matching transcripts in these directories, the one changed last first.

    Where no file name matches, the headers of all files are read.
    """
    files = [file for directory in directories for file in _transcript_files(directory)]
    found = _with_id(wanted, filter(wanted.is_in_name, files)) or _with_id(wanted, files)
    return sorted(found, key=lambda transcript: _changed_at(transcript.path), reverse=True)


def _with_id(wanted: IdPattern, files: Iterable[str]) -> list[Transcript]:
    return [found for file in files if (found := _read_header(file)) is not None and wanted.matches(found.id)]


def _transcript_files(directory: Path) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            yield from [entry.path for entry in entries if entry.name.endswith(".jsonl")]
    except OSError:  # a directory that is not there holds nothing
        return


def _changed_at(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0


def _read_header(path: str) -> Transcript | None:
    """The header of a transcript; None for any other file."""
    try:
        with os.fdopen(open_regular(Path(path), os.O_RDONLY), "rb") as file:
            lines = file.read(_HEAD_BYTES).splitlines()[:_HEAD_LINES]
    except (OSError, ValueError):
        return None
    for line in lines:
        try:
            header = _header_decoder.decode(line)
        except DECODE_ERRORS:
            continue
        if header.type == "session" and header.id:
            return Transcript(path, header.id, header.cwd)
    return None


_search_limiter = trio.CapacityLimiter(2)
"""Bounds how many directories are read at once for front ends that attach."""


class NamedConversation(msgspec.Struct, frozen=True):
    """``session``: its key, which may be new; None = a session of its own. ``file``: the transcript to open in it."""

    session: str | None = None
    file: str | None = None


class ConversationLookup:
    """``owner_of``: the session of a transcript. ``data_dir``: holds the workers' transcripts, by agent."""

    def __init__(self, sessions: Sessions, owner_of: Callable[[str], str | None], data_dir: Path) -> None:
        self._sessions = sessions
        self._owner_of = owner_of
        self._data_dir = data_dir

    async def find(
        self, request: AttachRequest, flags: AgentFlags, agent: str, definition: AgentSettings
    ) -> NamedConversation:
        """The conversation that ``request`` names. Raises UsageError where it does not exist: no empty one is begun."""
        name = request.session
        if flags.session_id is not None:
            if name is not None:
                raise UsageError("--session and --session-id both name a conversation; give one of them")
            return await self._by_id(IdPattern(flags.session_id, exact=True), request, flags, agent, definition)
        if name is None:
            return NamedConversation()
        if "/" in name or name.endswith(".jsonl"):
            return await self._by_path(normalize_path(request.cwd, name))
        if normalize_session_key(name) in self._sessions or not looks_like_id(name):
            return NamedConversation(session=name)
        return await self._by_id(IdPattern(name), request, flags, agent, definition)

    async def _by_path(self, file: str) -> NamedConversation:
        real = await trio.to_thread.run_sync(_real_file, file, limiter=_search_limiter)
        for path in (file, real):
            owner = None if path is None else self._owner_of(path)
            if owner is not None:
                return NamedConversation(owner, path)
        if real is None:
            raise UsageError(f"there is no transcript {file}; leave --session out to begin a conversation")
        self._sessions.paths.check_own(real)
        return NamedConversation(None, real)

    async def _by_id(
        self, wanted: IdPattern, request: AttachRequest, flags: AgentFlags, agent: str, definition: AgentSettings
    ) -> NamedConversation:
        known = [entry for entry in self._sessions if entry.transcript and wanted.is_in_name(entry.transcript)]
        if known:
            latest = max(known, key=lambda entry: entry.updated_at)
            return NamedConversation(latest.key, latest.transcript)
        home = _pi_home(request, definition) if definition.traits.private_agent_dir else None
        near = [*_requested_dirs(request, flags), self._data_dir / "sessions" / agent, *_pi_dir(home, request.cwd)]
        found = await trio.to_thread.run_sync(find_transcripts, wanted, near, limiter=_search_limiter)
        if found:
            self._sessions.paths.check_own(found[0].path)
            return NamedConversation(self._owner_of(found[0].path), found[0].path)
        far = await trio.to_thread.run_sync(_find_elsewhere, wanted, home, limiter=_search_limiter)
        if far:
            raise UsageError(
                f"conversation {far[0].id} was begun in another directory, {far[0].cwd}; start there, or go on with it "
                f"here: --session {far[0].path}"
            )
        if wanted.exact:
            raise UsageError(
                f"no conversation has the id {wanted.id!r}, and the pool cannot begin one under an id of your choice; "
                "leave --session-id out, or choose a key: --session KEY"
            )
        raise UsageError(
            f"no conversation has an id that begins with {wanted.id!r}; `pool sessions` lists those that are there, "
            "and the key of a new session does not look like an id"
        )


def normalize_path(cwd: str, name: str) -> str:
    """The path that the name means to a worker in this directory."""
    return os.path.normpath(os.path.join(cwd, name))  # noqa: PTH118  # a Path would keep the dots


def _real_file(file: str) -> str | None:
    path = Path(file).resolve()
    return str(path) if path.is_file() else None


def _requested_dirs(request: AttachRequest, flags: AgentFlags) -> Iterator[Path]:
    """The transcript directories of the command line and the environment."""
    for flag, value in pairwise(flags.arguments):
        if flag == "--session-dir":
            yield Path(request.cwd, value)
    if request.env.get("PI_CODING_AGENT_SESSION_DIR"):
        yield Path(request.cwd, request.env["PI_CODING_AGENT_SESSION_DIR"]).expanduser()


def _pi_home(request: AttachRequest, definition: AgentSettings) -> Path:
    named = definition.agent_dir or request.env.get("PI_CODING_AGENT_DIR") or "~/.pi/agent"
    return Path(request.cwd, Path(named).expanduser()) / "sessions"


def _pi_dir(home: Path | None, cwd: str) -> list[Path]:
    """The transcript directory of pi itself for a working directory."""
    return [] if home is None else [home / f"--{cwd.removeprefix('/').replace('/', '-').replace(':', '-')}--"]


def _find_elsewhere(wanted: IdPattern, home: Path | None) -> list[Transcript]:
    if home is None or not home.is_dir():
        return []
    return find_transcripts(wanted, [place for place in home.iterdir() if place.is_dir()])
