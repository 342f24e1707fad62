"""Background commands by session, on the disk: a kill of the supervisor kills them, and the next one reports it."""

import msgspec

from store.documents import StoredDocuments
from wire.framing import DECODE_ERRORS
from wire.messages import Background

__all__ = ["RunningCommands"]

_RUNNING_KIND = "exec_running"
_encode = msgspec.json.Encoder().encode
_decode_running = msgspec.json.Decoder(Background).decode


class RunningCommands:
    """One document for each session with background commands. Only ``left`` waits for the disk."""

    def __init__(self, documents: StoredDocuments) -> None:
        self._documents = documents
        self._of_worker: dict[str, tuple[str, Background]] = {}

    async def left(self) -> dict[str, Background]:
        """The commands that ran when the last supervisor was killed, by session. Raises StoreUnusable."""
        return {session: _read(body) for session, body in (await self._documents.load(_RUNNING_KIND)).items()}

    def drop(self, session: str) -> None:
        """Remove a session's entry of ``left`` after it was reported."""
        self._documents.put(_RUNNING_KIND, session, None)

    def note(self, worker: str, session: str | None, commands: Background) -> None:
        """The commands on a worker now, and their session (None: the conversation is over)."""
        was = self._of_worker.pop(worker, None)
        if session is not None and commands.running:
            self._of_worker[worker] = session, commands
            self._documents.put(_RUNNING_KIND, session, _encode(commands))
        if was is not None and (was[0] != session or not commands.running):
            self._documents.put(_RUNNING_KIND, was[0], None)

    def note_end(self, worker: str, name: str) -> None:
        """Remove a command whose end is reported now, so that it is not reported as killed later."""
        session, commands = self._of_worker.get(worker, (None, Background()))
        if session is not None and (name in commands.names or not commands.names):
            names = [other for other in commands.names if other != name]
            self.note(worker, session, Background(commands.running - 1, names))

    def of(self, session: str) -> Background:
        """The session's commands now."""
        return next((commands for key, commands in self._of_worker.values() if key == session), Background())

    def forget(self, session: str) -> None:
        """The session's conversation is over; its commands are no longer reported."""
        for worker in [worker for worker, (key, _) in self._of_worker.items() if key == session]:
            self.note(worker, None, Background())


def _read(body: bytes) -> Background:
    try:
        return _decode_running(body)
    except DECODE_ERRORS:
        return Background(1)  # how many they were is not known
