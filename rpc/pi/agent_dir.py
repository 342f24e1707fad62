"""A private copy of pi's agent dir for one worker: pi's setters write its settings file, and others would read that.

Files are copied, directories (extensions, skills, prompts, themes, packages) are linked, since pi only reads them.
``auth.json`` is linked too: pi writes it in place when it renews a login, and a renewed login makes older copies
worthless. Transcripts are neither: they must outlive the worker, so their directory is named explicitly.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Self

from errors import WorkerStartFailed

AGENT_DIR_VARIABLE = "PI_CODING_AGENT_DIR"
SESSION_DIR_VARIABLE = "PI_CODING_AGENT_SESSION_DIR"
MAX_FILE_BYTES = 16 * 1024 * 1024
"""Larger files of the agent dir are linked, not copied."""
_LINKED_FILES = frozenset({"auth.json"})
_SKIPPED_NAMES = frozenset({"sessions"})
_SKIPPED_SUFFIXES = (".lock", ".log", ".tmp")


class PrivateAgentDir:
    """One worker's agent dir at ``path``; ``sessions`` is where its transcripts go.

    ``with`` makes it and removes it; a shell that cannot nest calls ``make`` and ``remove``.
    """

    def __init__(self, source: Path, path: Path, sessions: Path) -> None:
        self._source = source
        self.path = path
        self.sessions = sessions

    @property
    def environ(self) -> dict[str, str]:
        """What the worker's environment must hold; a ``--session-dir`` in its command goes before the variable."""
        return {AGENT_DIR_VARIABLE: str(self.path), SESSION_DIR_VARIABLE: str(self.sessions)}

    def make(self) -> None:
        """Make the copy, mode 0700; what an earlier worker left at ``path`` is removed. A missing source is empty.

        Raises WorkerStartFailed.
        """
        try:
            self.remove()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
            for entry in sorted(self._source.iterdir()) if self._source.is_dir() else ():
                self._copy_entry(entry)
        except OSError as exc:
            raise WorkerStartFailed(f"the agent dir {self._source} cannot be copied to {self.path}: {exc}") from exc

    def remove(self) -> None:
        """Remove the copy, never what its links point to; nothing happens when there is none."""
        if self.path.is_symlink():
            self.path.unlink()
        elif self.path.exists():
            shutil.rmtree(self.path)

    def _copy_entry(self, entry: Path) -> None:
        name = entry.name
        if name in _SKIPPED_NAMES or name.endswith(_SKIPPED_SUFFIXES):
            return
        copy, real = self.path / name, Path(os.path.realpath(entry))
        if real.is_dir():
            copy.symlink_to(real, target_is_directory=True)
        elif not real.is_file():
            return  # a broken link, a socket: nothing that pi reads
        elif name in _LINKED_FILES or real.stat().st_size > MAX_FILE_BYTES:
            copy.symlink_to(real)
        else:
            shutil.copyfile(real, copy)
            copy.chmod(0o600)

    def __enter__(self) -> Self:
        self.make()
        return self

    def __exit__(self, *_exc: object) -> None:
        with suppress(OSError):  # what cannot be removed now does no harm: ``make`` begins by removing it
            self.remove()
