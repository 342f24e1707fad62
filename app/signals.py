"""The signals of a supervisor: which it handles, and receiving them until its end."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import trio


def handled_signals() -> tuple[signal.Signals, ...]:
    """Signals that stop the supervisor, and SIGHUP: reload, or the terminal is gone.

    Where ``nohup`` has SIGHUP ignored it stays so.
    """
    always = (signal.SIGTERM, signal.SIGINT)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)


@contextmanager
def receive_signals(*numbers: signal.Signals) -> Iterator[AsyncIterator[int]]:
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
