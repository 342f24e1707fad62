"""The devices of a node, shared out among its workers."""

from collections.abc import Iterator
from contextlib import contextmanager


class DeviceShare:
    """One device for each worker, the one that the fewest have.

    Args:
        text: the variable that names them, as in ``CUDA_VISIBLE_DEVICES=0,1``; "" = there are none to share.
    """

    def __init__(self, text: str) -> None:
        self._variable, _, listed = text.partition("=")
        self._workers = {device: 0 for device in listed.split(",") if device}

    @contextmanager
    def one(self) -> Iterator[tuple[tuple[str, str], ...]]:
        """The variables of a worker that runs in the block."""
        if not self._workers:
            yield ()
            return
        device = min(self._workers, key=self._workers.__getitem__)
        self._workers[device] += 1
        try:
            yield ((self._variable, device),)
        finally:
            self._workers[device] -= 1
