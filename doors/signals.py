"""The signals by which a supervisor is told to end: heard while it runs, and ignored while its process finishes."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import trio

__all__ = ["hearing", "signals_to_hear"]


def signals_to_hear() -> tuple[signal.Signals, ...]:
    """What asks us to stop, and SIGHUP, which asks to reload, or tells that our terminal is gone.

    Where ``nohup`` has SIGHUP ignored it stays so.
    """
    always = (signal.SIGTERM, signal.SIGINT)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)


@contextmanager
def hearing(*numbers: signal.Signals) -> Iterator[AsyncIterator[int]]:
    """``trio.open_signal_receiver``, but afterwards they are ignored: what they ask for is as good as done.

    By their defaults one that comes a moment later would end the process as if it had been killed in its work.
    """
    missed: list[int] = []
    for number in numbers:  # what the receiver puts back at its end: there is no moment in which one would end us
        signal.signal(number, lambda number, _frame: missed.append(number))
    try:
        with trio.open_signal_receiver(*numbers) as signals:
            for came in missed:
                signal.raise_signal(came)
            yield signals
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
