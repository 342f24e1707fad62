"""One data directory and the supervisors that live on it, one after the other."""

import signal
from pathlib import Path
from typing import Any

import msgspec

from tests.acceptance.supervisor import Supervisor


class Lives:
    """``all`` are the supervisors so far; only the last one can be alive. Everything here blocks."""

    def __init__(self, folder: Path, settings: str) -> None:
        """``folder`` exists and has a short path; ``settings`` is the text of the settings file."""
        self.data_dir = folder / "data"
        self.settings_file = folder / "pool.toml"
        self.settings_file.write_text(settings)
        self.all: list[Supervisor] = []

    def living(self) -> Supervisor:
        """The supervisor, ready for clients; a new one where the last has ended."""
        if not self.all or self.all[-1].process.poll() is not None:
            self.all.append(Supervisor(self.data_dir, "--config", str(self.settings_file)))
            self.all[-1].wait_for_log("ready")
        return self.all[-1]

    def kill(self) -> None:
        """``kill -9``, and wait for its end; one that has died already is only waited for."""
        self.all[-1].signal(signal.SIGKILL)
        self.all[-1].wait()

    def stop(self) -> None:
        """Stop the last one in good order, if it lives."""
        if not self.all or self.all[-1].process.poll() is not None:
            return
        self.all[-1].signal(signal.SIGTERM)
        code = self.all[-1].wait()
        assert code == 0, "".join(self.all[-1].log)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Every line of that event in all lives."""
        lines = (line for life in self.all for line in life.log if f'"event":"{event}"' in line)
        return [msgspec.json.decode(line) for line in lines]
