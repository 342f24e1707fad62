"""Hears what a command says: reads as much as there is, in the order it came, and sleeps when there is nothing."""

import os
from collections.abc import Callable

import trio

from agent.processes.output import Output
from agent.processes.spawn import Child

__all__ = ["Listener"]

_READ_BYTES = 64 * 1024
_READS = 16
"""Reads in a row from one stream before others get their turn."""
_LAST_ROUNDS = 16
"""A pipe holds 64 KiB; a left-over process that goes on writing must not keep us at it."""


class Listener:
    """Reads the outputs of ``child`` into ``output``, and calls ``on_news`` after each batch."""

    def __init__(self, child: Child, output: Output, on_news: Callable[[], None]) -> None:
        self._outputs = child.outputs
        self._epoll = child.ears
        self._open = {descriptor: index for index, descriptor in enumerate(child.outputs)}
        self._output = output
        self._on_news = on_news

    async def run(self) -> None:
        """Listen until all streams are closed, or cancelled."""
        while self._open:
            await trio.lowlevel.wait_readable(next(iter(self._open)) if self._epoll is None else self._epoll.fileno())
            self._read_ready()

    def finish(self) -> None:
        """Read what is left without waiting for who else holds the streams open, and close all."""
        for _ in range(_LAST_ROUNDS):
            if not self._read_ready():
                break
        for descriptor in self._outputs:
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)
        if self._epoll is not None:
            self._epoll.close()
        self._output.finish()

    def _read_ready(self) -> bool:
        before = len(self._open)
        ready = list(self._open) if self._epoll is None else [descriptor for descriptor, _ in self._epoll.poll(0)]
        is_news = [self._read(descriptor) for descriptor in ready]
        if any(is_news):
            self._on_news()
        return any(is_news) or len(self._open) < before

    def _read(self, descriptor: int) -> bool:
        """Read a bounded number of times; whether there was anything."""
        for number in range(_READS):
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return number > 0
            except OSError:  # a terminal without a process says EIO where a pipe says that it is at its end
                data = b""
            if not data:
                self._leave(descriptor)
                return number > 0
            self._output.feed(self._open[descriptor], data)
            if len(data) < _READ_BYTES:
                break  # most likely that was all; if not, one is told so
        return True

    def _leave(self, descriptor: int) -> None:
        """Not closed yet: a terminal's may still be written to, and its number must not get another meaning."""
        del self._open[descriptor]
        if self._epoll is not None:
            self._epoll.unregister(descriptor)
