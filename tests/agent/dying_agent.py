"""The command ``agent`` that kills itself at its n-th step to the disk: DIE_AT=n DIE_HOW=before|after|torn.

A step is one entry that is written, or one wait for the disk.
"""

import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from agent.cli import main
from wire.transcript import TranscriptWriter

_STEPS = itertools.count(1)


def dying(step: Callable[..., None]) -> Callable[..., None]:
    def die_or_do(writer: TranscriptWriter, *line: Any) -> None:
        if next(_STEPS) == int(os.environ["DIE_AT"]):
            match os.environ["DIE_HOW"]:
                case "after":
                    step(writer, *line)
                case "torn" if line:
                    os.write(writer._descriptor, line[0][: len(line[0]) // 2])
                case _:
                    pass  # dies before it
            os.kill(os.getpid(), signal.SIGKILL)
        step(writer, *line)

    return die_or_do


for name in ("_write", "sync"):
    setattr(TranscriptWriter, name, dying(getattr(TranscriptWriter, name)))

if __name__ == "__main__":
    sys.exit(main())
