"""What is known of each agent's program from its workers: name, version, abilities, how its conversations went on."""

from typing import Literal

import msgspec

from errors import PoolError, WorkerStartFailed
from wire.messages import Ready

_FAILED_RESUMES = 2
"""Conversations in a row that had to be fed again: then the program is taken for one that cannot go on with any."""


_MAX_OFFERED, _MAX_NAME_CHARS = 500, 200


class ProgramRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's program. Empty texts: no worker of it has been ready yet, or it says nothing of itself."""

    program: str = ""
    version: str = ""
    capabilities: tuple[str, ...] = ()
    resumes: Literal["yes", "no", "unknown"] = "unknown"
    """Whether it was seen to go on with a conversation of an earlier process; no = by a new one that is fed its end."""
    models: tuple[str, ...] | None = None
    """The models that it offers, as far as they are remembered; None: it says nothing of them."""
    thinking_levels: tuple[str, ...] | None = None
    """The same of how hard it thinks."""
    is_ready: bool = False
    """Whether the last start went well."""
    problem: str | None = None
    """Why the last start failed."""


class AgentRecords:
    """One for the pool; by the names of agent definitions, of which there are few."""

    def __init__(self) -> None:
        self._records: dict[str, ProgramRecord] = {}
        self._refed: dict[str, int] = {}

    def find(self, agent: str) -> ProgramRecord | None:
        """What is known of it; None before its first worker was ready, or failed to start."""
        return self._records.get(agent)

    def note_ready(self, agent: str, ready: Ready | None) -> None:
        """A worker of it is ready. What was seen of another program or version is forgotten."""
        before, said = self._get(agent), ready or Ready()
        abilities = () if isinstance(said.capabilities, msgspec.UnsetType) else tuple(said.capabilities)
        now = ProgramRecord(
            program=said.agent,
            version=said.version,
            capabilities=abilities,
            models=_offered(said.models),
            thinking_levels=_offered(said.thinking_levels),
            is_ready=True,
        )
        if (before.program, before.version) == (now.program, now.version):
            now = msgspec.structs.replace(now, resumes=before.resumes)
        else:
            self._refed.pop(agent, None)
        self._records[agent] = now

    def note_resume(self, agent: str, strategy: str) -> None:
        """A worker of it has gone on with a conversation; one that it still had (``kept``) proves nothing."""
        if strategy in ("loaded", "resumed"):
            self._refed.pop(agent, None)
            self._set_resumes(agent, "yes")
        elif strategy == "refed":
            times = self._refed[agent] = self._refed.get(agent, 0) + 1
            if times >= _FAILED_RESUMES:
                self._set_resumes(agent, "no")

    def note_end(self, agent: str, error: PoolError | None) -> None:
        """A worker of it has ended."""
        if isinstance(error, WorkerStartFailed):
            self._records[agent] = msgspec.structs.replace(self._get(agent), is_ready=False, problem=error.message)

    def _get(self, agent: str) -> ProgramRecord:
        return self._records.get(agent, ProgramRecord())

    def _set_resumes(self, agent: str, resumes: Literal["yes", "no"]) -> None:
        self._records[agent] = msgspec.structs.replace(self._get(agent), resumes=resumes)


def _offered(names: list[str] | msgspec.UnsetType) -> tuple[str, ...] | None:
    if isinstance(names, msgspec.UnsetType):
        return None
    return tuple(name for name in names if len(name) <= _MAX_NAME_CHARS)[:_MAX_OFFERED]
