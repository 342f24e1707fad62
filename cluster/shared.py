"""Transcripts on a file system that all machines share: nothing is sent, and each node proves that it sees it."""

import secrets
from pathlib import Path

from cluster.messages import SHARED_PROOF
from cluster.proof import is_same
from cluster.transport import RemoteProcess
from wire.files import replace_file


class SharedProcess(RemoteProcess):
    """A worker on a node that writes its transcript where this machine reads it.

    How durable an answer is depends on that file system: this machine sees the entry, and syncs nothing.
    """

    async def keep(self, transcript: str | None) -> None:
        """Nothing to do: it is here."""

    async def prepare_resume(self, transcript: str) -> bool:  # noqa: ARG002 - the interface's
        """Nothing to do: the node reads what was mended here."""
        return True


class SharedDirectory:
    """The supervisor's data directory, as nodes are to see it. Raises OSError where it cannot be written."""

    def __init__(self, data_dir: Path) -> None:
        self._nonce = secrets.token_hex(16)
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(data_dir / SHARED_PROOF, self._nonce.encode())

    def is_seen(self, proof: str) -> bool:
        """Whether the node that shows this sees this very directory."""
        return is_same(self._nonce, proof)
