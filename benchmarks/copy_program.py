"""A program that stands between another and its caller and only copies bytes: the least that standing there costs.

    python copy_program.py plain|trio COMMAND [ARGUMENT ...]

``plain`` waits as ``pool attach`` does, ``trio`` as the supervisor does.
"""

import os
import select
import subprocess
import sys

import trio

_CHUNK_BYTES = 64 * 1024


def main(kind: str, command: list[str]) -> None:
    """Copy until stdin ends."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        ways = {0: program.stdin.fileno(), program.stdout.fileno(): 1}
        if kind == "trio":
            trio.run(_copy_all, ways)
        else:
            _copy_plainly(ways)
        program.stdin.close()


def _copy_plainly(ways: dict[int, int]) -> None:
    poll = select.poll()
    for source in ways:
        poll.register(source, select.POLLIN)
    while True:
        for source, _ in poll.poll():
            if not _copy_some(source, ways[source]):
                return


async def _copy_all(ways: dict[int, int]) -> None:
    async with trio.open_nursery() as nursery:

        async def copy(source: int) -> None:
            await trio.lowlevel.wait_readable(source)
            while _copy_some(source, ways[source]):
                await trio.lowlevel.wait_readable(source)
            nursery.cancel_scope.cancel()

        for source in ways:
            nursery.start_soon(copy, source)


def _copy_some(source: int, target: int) -> bool:
    data = os.read(source, _CHUNK_BYTES)
    os.write(target, data)
    return bool(data)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
