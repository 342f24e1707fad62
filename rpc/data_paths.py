"""Paths of the data directory as the store has them: relative, so that a copied or moved directory has its own."""

import os
from pathlib import Path

from errors import UsageError
from rpc.host import SESSIONS_DIR
from wire.files import LOCK_NAME, WORKSPACES_DIR

_OWN_DIRS = frozenset({SESSIONS_DIR, WORKSPACES_DIR})
"""Directories in a data directory that sessions name paths of."""


class DataPaths:
    """Translates between paths as they are used and as the store has them. ``data_dir`` is absolute."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._roots = (str(data_dir), os.path.realpath(data_dir))

    def stored(self, path: str | None) -> str | None:
        """Relative where it lies in the data directory, otherwise as it is."""
        if path is not None:
            for root in self._roots:
                if path.startswith(f"{root}/"):
                    return path[len(root) + 1 :]
        return path

    def used(self, stored: str | None) -> str | None:
        """The path here of one that was stored, maybe in another directory of which this one is a copy.

        Stores of older versions hold absolute paths. One in another data directory means the file of this one: the
        other belongs to another supervisor, which may be running. Asks the file system for such paths only.
        """
        own = self.stored(stored)
        if own is not None and not os.path.isabs(own):  # noqa: PTH117 - strings: there may be many at a start
            return str(self._data_dir / own)
        return stored if stored is None else self._moved(stored) or stored

    def check_own(self, path: str) -> None:
        """Raise UsageError for a transcript in another data directory: two supervisors would write it."""
        for root, relative in _splits(os.path.realpath(path)):
            if root in self._roots:
                return  # it may lie in a workspace of another one
            if relative.startswith(f"{SESSIONS_DIR}/") and Path(root, LOCK_NAME).exists():
                raise UsageError(f"{path} belongs to the data directory {root}; copy it to another place first")

    def _moved(self, path: str) -> str | None:
        """What a path in another data directory is in this one; None where it is the path of no data directory."""
        for root, relative in _splits(path):
            own = self._data_dir / relative
            is_here = relative.startswith(f"{SESSIONS_DIR}/") and own.exists()  # its name is that of one file alone
            if is_here or Path(root, LOCK_NAME).exists() or not Path(root).exists():
                return str(own)
        return None


def _splits(path: str) -> list[tuple[str, str]]:
    """Each data directory that the path may lie in, and what is the path there; the innermost first."""
    parts = path.split("/")
    at = [number for number, part in enumerate(parts) if part in _OWN_DIRS and 0 < number < len(parts) - 1]
    return [("/".join(parts[:number]) or "/", "/".join(parts[number:])) for number in reversed(at)]
