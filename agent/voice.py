"""What one run tells: every event goes out at once, and a bounded number is kept for the prompt's result."""

from typing import Any

from agent.output import Output

__all__ = ["RunVoice"]


class RunVoice:
    """Tells events under one run's id."""

    def __init__(self, output: Output, run_id: str, most_kept: int) -> None:
        self._output = output
        self._run_id = run_id
        self._most_kept = most_kept
        self._kept: list[dict[str, Any]] = []
        self._left_out = 0
        self._silent = False

    def say(self, name: str, data: dict[str, Any]) -> None:
        """Tell one event; updates of tools are not kept."""
        if self._silent:
            return
        said = self._output.event(name, {**data, "run_id": self._run_id})
        if data.get("phase") == "update":
            return
        if len(self._kept) < self._most_kept:
            self._kept.append(said)
        else:
            self._left_out += 1

    def fall_silent(self) -> None:
        """The run is over: what still comes of it is not told."""
        self._silent = True

    def events(self) -> list[dict[str, Any]]:
        """Those that were kept, and how many were not."""
        if not self._left_out:
            return self._kept
        return [*self._kept, {"event": "left_out", "data": {"events": self._left_out}}]
