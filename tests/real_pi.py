"""The releases of the real pi that tests drive, each installed by ``make pi`` with what it needs to run."""

import json
import os
from functools import cached_property
from pathlib import Path

PI_VERSIONS = ("0.73.1", "0.87.1")
"""The oldest that is supported, on which every test runs, and one of the present releases."""
_CACHE = Path(__file__).parents[1] / ".cache"


class RealPi:
    """One installed pi. ``command``: its executable, a link into its package or a script beside ``node_modules``."""

    def __init__(self, command: Path) -> None:
        self.command = command

    @classmethod
    def of(cls, version: str) -> "RealPi":
        """The one that ``make pi`` installs."""
        return cls(_CACHE / f"pi-{version}" / "bin" / "pi")

    @cached_property
    def _script(self) -> Path:
        beside = self.command.parent.parent / "node_modules" / ".bin" / "pi"
        return (beside if beside.exists() else self.command).resolve()

    @cached_property
    def package(self) -> Path:
        """The directory of the npm package."""
        return next(place for place in self._script.parents if (place / "package.json").exists())

    @cached_property
    def version(self) -> tuple[int, ...]:
        """Such as ``(0, 87, 1)``."""
        return tuple(map(int, json.loads((self.package / "package.json").read_text())["version"].split(".")))

    @property
    def script(self) -> Path:
        """What node runs."""
        return self._script

    @property
    def path(self) -> str:
        """``PATH`` with the node that it brings first."""
        return f"{self.command.parent.parent / 'node_modules' / '.bin'}:{os.environ['PATH']}"
