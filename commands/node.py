"""``pool node``: the program that runs on each machine of a cluster."""

import os
import stat
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from errors import UsageError
from wire.addresses import NODE_NAME, parse_bind
from wire.tokens import read_token

if TYPE_CHECKING:
    from cluster.wire import LinkWire

_MAX_SECRET_BYTES = 256


@click.command()
@click.option("--dial", metavar="HOST:PORT", help="Where the supervisor listens (cluster.listen).")
@click.option("--fingerprint", default="", metavar="HEX", help="SHA-256 of its certificate; not needed with a token.")
@click.option("--token-file", metavar="FILE", help="A file with the cluster's token, which cluster.token_file names.")
@click.option("--secret-file", metavar="FILE", help="A file with an invitation's secret instead; - reads stdin.")
@click.option("--stdio", is_flag=True, help="Speak over stdin and stdout instead of dialling.")
@click.option("--name", metavar="NAME", help="The node's name (default: this machine's).")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label, by which it belongs to a group.")
@click.option(
    "--slots", type=click.IntRange(0), default=0, metavar="N", help="Workers at most; 0 = by memory and cores."
)
@click.option(
    "--devices",
    default="",
    metavar="VARIABLE=ID,...",
    help="Devices of which each worker gets one, as CUDA_VISIBLE_DEVICES=0,1.",
)
@click.option("--state-dir", metavar="DIR", help="Where it remembers what it has started.")
def node(
    dial: str | None,
    fingerprint: str,
    name: str | None,
    labels: tuple[str, ...],
    slots: int,
    *,
    devices: str,
    stdio: bool,
    state_dir: str | None,
    **files: str | None,
) -> None:
    """Run workers on this machine for a supervisor elsewhere, until it is ended.

    The data directory has the same path on all machines: transcripts are sent to the supervisor as they are written.
    """
    from cluster.node.program import NodeIdentity, run_node

    name = name or os.uname().nodename
    if not NODE_NAME.fullmatch(name):
        raise UsageError(f"{name[:80]!r} is no name for a node; give it another one by --name")
    identity = NodeIdentity(
        name=name,
        state_file=(Path(state_dir) if state_dir else _default_state_dir()) / f"{name}.json",
        slots=slots,
        labels=dict(map(_label, labels)),
        secret=_read_secret(files["secret_file"]),
        devices=devices,
        token=read_token(Path(files["token_file"])) if files["token_file"] else "",
    )
    if stdio:
        run_node(identity, _standard_streams, _say, is_single=True)
        return
    if dial is None:
        raise UsageError("say where the supervisor is (--dial HOST:PORT), or --stdio")
    if not identity.token and not (identity.secret and fingerprint):
        raise UsageError("--dial needs --token-file, or else --secret-file and --fingerprint")
    run_node(identity, _dialler(dial, fingerprint), _say, is_single=not identity.token)  # an engine invites again


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise UsageError(f"a label is KEY=VALUE, not {text[:80]!r}")
    return key, value


def _read_secret(path: str | None) -> str:
    if path is None:
        return ""
    if path == "-":
        return sys.stdin.buffer.readline(_MAX_SECRET_BYTES).decode("utf-8", "replace").strip()
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(f"others may use the secret file {path}; run: chmod 600 {path}")
            return file.read(_MAX_SECRET_BYTES).strip()
    except OSError as exc:
        raise UsageError(f"cannot read the secret in {path}: {exc.strerror}") from exc


def _default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "pool-node"


def _dialler(address: str, fingerprint: str) -> "Callable[[], Awaitable[LinkWire]]":
    from cluster.wire import LinkWire

    host, port = parse_bind(address)
    return partial(LinkWire.dial, host, port, fingerprint)


async def _standard_streams() -> "LinkWire":
    import trio

    from cluster.wire import LinkWire

    await trio.lowlevel.checkpoint()
    descriptors = os.dup(0), os.dup(1)
    for fd in descriptors:
        os.set_blocking(fd, False)
    return LinkWire.of_pipes(*descriptors)


def _say(text: str) -> None:
    sys.stderr.write(f"pool node: {text}\n")
    sys.stderr.flush()
