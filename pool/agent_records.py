"""What is known of each agent's program from its workers: name, version, abilities, how its conversations went on.

What took a conversation, or a request of its own, to learn is kept over the end of the supervisor.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from errors import PoolError, WorkerStartFailed
from wire.framing import DECODE_ERRORS
from wire.messages import Ready

DOCUMENT_KIND = "agent_program"
"""Of the store's documents; the key is the agent definition's name: of one definition only the latest version's."""
_FAILED_RESUMES = 2
"""Conversations in a row that had to be fed again: then the program is taken for one that cannot go on with any."""
_MAX_NAME = 200
"""Characters of a program's name and version: they are its own words."""
_MAX_OFFERED = 500
_WAYS_BACK = frozenset({"load", "resume"})
Answer = Literal["yes", "no", "unknown"]


class ProgramRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's program. Empty texts: no worker of it has been ready yet, or it says nothing of itself."""

    program: str = ""
    version: str = ""
    capabilities: tuple[str, ...] = ()
    resumes: Answer = "unknown"
    """Whether it was seen to go on with a conversation of an earlier process; no = by a new one that is fed its end."""
    models: tuple[str, ...] | None = None
    """The models that it offers, as far as they are remembered; None: it says nothing of them."""
    thinking_levels: tuple[str, ...] | None = None
    """The same of how hard it thinks."""
    honest: Answer = "unknown"
    """Whether it refuses to resume an id that it does not have: then a resume need not show what it took up."""
    forgets: bool = False
    """Whether it cannot go on with a conversation of an earlier process, by its own words or by what was seen."""
    is_ready: bool = False
    """Whether the last start went well."""
    problem: str | None = None
    """Why the last start failed."""


class _Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one version. ``failed``: conversations in a row that had to be fed again."""

    program: str = ""
    version: str = ""
    resumes: Answer = "unknown"
    honest: Answer = "unknown"
    failed: int = 0


def _keep_nothing(_agent: str, _body: bytes) -> None:
    """Where there is no store."""


class AgentRecords:
    """One for the pool; by the names of agent definitions, of which there are few.

    Args:
        kept: documents of an earlier supervisor, by agent; one that cannot be read has to be learned again.
        keep: called with an agent and its document where something was learned of it; must not block.
    """

    def __init__(
        self, kept: Mapping[str, bytes] | None = None, keep: Callable[[str, bytes], None] = _keep_nothing
    ) -> None:
        self._records: dict[str, ProgramRecord] = {}
        self._learned: dict[str, _Learned] = {}
        self._keep = keep
        self._tried: dict[str, tuple[str, str]] = {}
        """Program and version of which a worker was asked for a conversation that it cannot have."""
        for agent, body in (kept or {}).items():
            try:
                self._learned[agent] = found = msgspec.json.decode(body, type=_Learned)
            except DECODE_ERRORS:
                continue
            self._records[agent] = _with(ProgramRecord(program=found.program, version=found.version), found)

    def find(self, agent: str) -> ProgramRecord | None:
        """What is known of it; None before its first worker was ready, or failed to start."""
        return self._records.get(agent)

    def note_ready(self, agent: str, ready: Ready | None) -> None:
        """A worker of it is ready. What was seen of another program or version is forgotten."""
        self._begin(agent, ready)
        said = ready or Ready()
        abilities = None if isinstance(said.capabilities, msgspec.UnsetType) else said.capabilities
        program, version = _identity(ready)
        now = ProgramRecord(
            program=program,
            version=version,
            capabilities=tuple(abilities or ()),
            models=_offered(said.models),
            thinking_levels=_offered(said.thinking_levels),
            is_ready=True,
        )
        if abilities is not None and _WAYS_BACK.isdisjoint(abilities):
            now = msgspec.structs.replace(now, forgets=True)
        self._records[agent] = _with(now, self._learned[agent])

    def note_resume(self, agent: str, ready: Ready | None, strategy: str, cause: str | None = None) -> None:
        """A worker of it has gone on with a conversation, or has refused to.

        One that it still had (``kept``) proves nothing, nor does one that it was not asked for (``unsupported``).
        """
        if not self._is_of(agent, ready):
            return
        known = self._learned[agent]
        if strategy in ("loaded", "resumed"):
            self._learn(agent, resumes="yes", failed=0)
        elif strategy == "refed" and cause != "unsupported" and known.failed < _FAILED_RESUMES:
            failed = known.failed + 1
            self._learn(agent, resumes="no" if failed >= _FAILED_RESUMES else known.resumes, failed=failed)

    def wants_probe(self, agent: str, ready: Ready | None) -> bool:
        """Whether this worker is to be asked for a conversation that it cannot have: once for each version.

        Also where no answer came, until the next supervisor: an agent that dies of it must not do so at each start.
        """
        if ready is None or isinstance(ready.capabilities, msgspec.UnsetType) or not ready.version:
            return False
        known = self._learned[agent].honest if self._is_of(agent, ready) else "unknown"
        if "resume" not in ready.capabilities or known != "unknown" or self._tried.get(agent) == _identity(ready):
            return False
        self._tried[agent] = _identity(ready)
        return True

    def note_probe(self, agent: str, ready: Ready | None, *, honest: bool) -> None:
        """Whether it refused that."""
        self._begin(agent, ready)
        self._learn(agent, honest="yes" if honest else "no")

    def is_honest(self, agent: str, ready: Ready | None) -> bool:
        """Whether a resume of this worker may be believed."""
        return self._is_of(agent, ready) and self._learned[agent].honest == "yes"

    def forgets(self, agent: str) -> bool:
        """Whether its conversations are lost to it with their process."""
        record = self._records.get(agent)
        return record is not None and record.forgets

    def note_end(self, agent: str, error: PoolError | None) -> None:
        """A worker of it has ended."""
        if isinstance(error, WorkerStartFailed):
            before = self._records.get(agent, ProgramRecord())
            self._records[agent] = msgspec.structs.replace(before, is_ready=False, problem=error.message)

    def _begin(self, agent: str, ready: Ready | None) -> None:
        if not self._is_of(agent, ready):
            program, version = _identity(ready)
            self._learned[agent] = _Learned(program=program, version=version)

    def _is_of(self, agent: str, ready: Ready | None) -> bool:
        """Whether what was learned of the agent is about the program and version of this worker."""
        known = self._learned.get(agent)
        return known is not None and (known.program, known.version) == _identity(ready)

    def _learn(self, agent: str, **facts: Answer | int) -> None:
        before = self._learned[agent]
        now = self._learned[agent] = msgspec.structs.replace(before, **facts)
        if agent in self._records:
            self._records[agent] = _with(self._records[agent], now)
        if now != before and now.version:  # nothing tells one program without a version from the next
            self._keep(agent, msgspec.json.encode(now))


def _identity(ready: Ready | None) -> tuple[str, str]:
    return ("", "") if ready is None else (ready.agent[:_MAX_NAME], ready.version[:_MAX_NAME])


def _offered(names: list[str] | msgspec.UnsetType) -> tuple[str, ...] | None:
    if isinstance(names, msgspec.UnsetType):
        return None
    return tuple(name for name in names if len(name) <= _MAX_NAME)[:_MAX_OFFERED]


def _with(record: ProgramRecord, learned: _Learned) -> ProgramRecord:
    is_claimed = not _WAYS_BACK.isdisjoint(record.capabilities)
    forgets = learned.resumes == "no" or (record.forgets and not is_claimed)
    return msgspec.structs.replace(record, resumes=learned.resumes, honest=learned.honest, forgets=forgets)
