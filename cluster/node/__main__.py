"""``python -m cluster.node``: the node program on standard input and output, or over TLS to a supervisor."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

import trio

from cluster.node.program import NodeIdentity, NodeProgram
from cluster.wire import LinkWire
from errors import PoolError
from rpc.orphans import become_subreaper


def main(arguments: list[str] | None = None) -> int:
    """Run until the link ends (``--stdio``) or for good (``--dial``); 1 = refused."""
    parser = argparse.ArgumentParser(prog="pool node", description=__doc__)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--stdio", action="store_true", help="the link is standard input and output")
    way.add_argument("--dial", metavar="HOST:PORT", help="the supervisor's address")
    parser.add_argument("--fingerprint", default="", help="SHA-256 of the supervisor's certificate, in hex")
    parser.add_argument("--secret-file", type=Path, help="a file with the secret of this node")
    parser.add_argument("--name", required=True, help="the node's name")
    parser.add_argument("--slots", type=int, default=0, help="the number of workers it may run")
    parser.add_argument("--state-dir", type=Path, default=_default_state_dir(), help="where it remembers its workers")
    options = parser.parse_args(arguments)
    identity = NodeIdentity(
        name=options.name,
        state_file=options.state_dir / f"{options.name}.json",
        slots=options.slots,
        secret=options.secret_file.read_text().strip() if options.secret_file else "",
    )
    become_subreaper()
    program = NodeProgram(identity, _say)
    dial = _standard_streams if options.stdio else partial(_dial, options.dial, options.fingerprint)
    try:
        trio.run(partial(program.run, dial, is_single=options.stdio))
    except PoolError as exc:
        _say(exc.message)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "pool-node"


async def _standard_streams() -> LinkWire:
    await trio.lowlevel.checkpoint()
    descriptors = os.dup(0), os.dup(1)
    for fd in descriptors:
        os.set_blocking(fd, False)
    return LinkWire.of_pipes(*descriptors)


async def _dial(address: str, fingerprint: str) -> LinkWire:
    host, _, port = address.rpartition(":")
    return await LinkWire.dial(host.strip("[]"), int(port), fingerprint)


def _say(text: str) -> None:
    sys.stderr.write(f"pool node: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
