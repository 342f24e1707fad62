"""Which background commands run for which session, kept for the next supervisor: they die when this one is killed."""

import msgspec

from store.documents import StoredDocuments
from wire.framing import DECODE_ERRORS
from wire.messages import Background

__all__ = ["RunningCommands"]

_KIND = "exec_running"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Background).decode


class RunningCommands:
    """One document for each session that has any. Its methods do not wait for the disk."""

    def __init__(self, documents: StoredDocuments) -> None:
        self._documents = documents
        self._of_worker: dict[str, tuple[str, Background]] = {}

    async def left(self) -> dict[str, Background]:
        """What ran when the last supervisor was killed, by session; see ``drop``. Raises StoreUnusable."""
        return {session: _read(body) for session, body in (await self._documents.load(_KIND)).items()}

    def drop(self, session: str) -> None:
        """What was left of the session has been told."""
        self._documents.put(_KIND, session, None)

    def note(self, worker: str, session: str | None, commands: Background) -> None:
        """These run on the worker now, for this session (None: for nobody's conversation)."""
        was = self._of_worker.pop(worker, None)
        if session is not None and commands.running:
            self._of_worker[worker] = session, commands
            self._documents.put(_KIND, session, _encode(commands))
        if was is not None and (was[0] != session or not commands.running):
            self._documents.put(_KIND, was[0], None)

    def note_end(self, worker: str, name: str) -> None:
        """One of the worker's has ended, which is told now; that it was lost must not be told later."""
        session, commands = self._of_worker.get(worker, (None, Background()))
        if session is not None and (name in commands.names or not commands.names):
            names = [other for other in commands.names if other != name]
            self.note(worker, session, Background(commands.running - 1, names))

    def of(self, session: str) -> Background:
        """What runs for the session now."""
        return next((commands for key, commands in self._of_worker.values() if key == session), Background())

    def forget(self, session: str) -> None:
        """The session's conversation is over, and what still runs belongs to nobody."""
        for worker in [worker for worker, (key, _) in self._of_worker.items() if key == session]:
            self.note(worker, None, Background())


def _read(body: bytes) -> Background:
    try:
        return _decode(body)
    except DECODE_ERRORS:
        return Background(1)  # that there was something is all that can be told
