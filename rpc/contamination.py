"""Lines of a worker that were no message: counted, sampled for the log, and too many in a row are the end."""

from collections import deque

from errors import ProtocolViolation
from rpc.dialect import Step
from wire.veil import Veil

__all__ = ["Contamination"]

_KEPT_SAMPLES = 8
_SAMPLE_BYTES = 512


class Contamination:
    """Adds up what the dialect found in each block. ``limit`` bad lines in a row are borne, one more is not."""

    def __init__(self, limit: int, veil: Veil) -> None:
        self._limit = limit
        self._veil = veil
        self._run = 0
        self._samples: deque[bytes] = deque(maxlen=_KEPT_SAMPLES)
        self.lines = 0

    @property
    def samples(self) -> list[bytes]:
        """The last few of them, oldest first, each cut to 512 bytes."""
        return list(self._samples)

    def note(self, step: Step) -> None:
        """Take the outcome of one block. Raises ProtocolViolation when too many bad lines stand in a row."""
        if not step.contaminated:
            if step.messages:
                self._run = 0
            return
        self.lines += len(step.contaminated)
        self._samples.extend(map(self._sample, step.contaminated[-_KEPT_SAMPLES:]))
        if step.messages:
            longest = max(self._run + step.leading_run, step.longest_run, step.contaminated_run)
            self._run = step.contaminated_run
        else:
            self._run += len(step.contaminated)
            longest = self._run
        if longest > self._limit:
            raise ProtocolViolation(
                f"{longest} lines in a row were no message (limit {self._limit}), "
                f"the last one {self._samples[-1][:80]!r}"
            )

    def note_torn_line(self, line: bytes) -> None:
        """The stream has ended inside a line."""
        if line:
            self.lines += 1
            self._samples.append(self._sample(line))

    def _sample(self, line: bytes) -> bytes:
        return self._veil.beginning(line, _SAMPLE_BYTES)
