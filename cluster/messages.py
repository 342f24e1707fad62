"""What the frames of a link carry, one structure each. Pure."""

from typing import Annotated, Any, TypeVar

import msgspec

from cluster.frames import MAX_SENT_BYTES, FrameKind, LinkViolation, encode_frame
from rpc.host import WorkerPlan
from rpc.settings import RpcSettings
from wire.addresses import NODE_NAME
from wire.units import Seconds

PROTOCOL = 1
"""The version of frames and messages; both ends must have the same."""

SHARED_PROOF = "shared-proof"
"""The file in the data directory that shows a node that it is the supervisor's own."""

MAX_SWEPT = 8
"""Instances that a HELLO may say are swept."""

_MAX_WORD, _MAX_PATH, _MAX_REASON = 256, 4096, 2048

Word = Annotated[str, msgspec.Meta(max_length=_MAX_WORD)]
FilePath = Annotated[str, msgspec.Meta(max_length=_MAX_PATH)]
Reason = Annotated[str, msgspec.Meta(max_length=_MAX_REASON)]
Count = Annotated[int, msgspec.Meta(ge=0)]

T = TypeVar("T")


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A node presents itself. It is its first ping, too: the lease begins when it is sent.

    ``machine``, ``boot``: which machine it is, "" = it does not say, and which boot of it.
    ``instance``: the marker of all that this link will start; never used before.
    ``swept``: instances of which nothing runs on the node any more. ``slots``: the number of workers it may run, 0 =
    by its ``memory`` (bytes) and ``cores``. ``guarantee``: how sure it is that no process of a worker survives it.
    ``secret``: that of an invitation. ``proof``: that it has the cluster's token, see ``cluster.proof``.
    """

    protocol: int = PROTOCOL
    version: Word
    name: Word
    boot: Word
    machine: Word = ""
    instance: Word
    swept: Annotated[tuple[Word, ...], msgspec.Meta(max_length=MAX_SWEPT)] = ()
    slots: Count = 0
    labels: dict[Word, Word] = {}
    memory: Count = 0
    cores: Count = 1
    guarantee: Word = ""
    secret: Word = ""
    proof: Word = ""

    def __repr__(self) -> str:
        return f"Hello({self.name} {self.instance})"  # without its secret


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor takes the node. ``lease``: seconds. ``data_dir``: where transcripts lie, on both.

    ``proof``: that it has the token that the node has. ``shared``: transcripts are not sent, as both write to one file
    system; the node's first ping shows that it sees ``SHARED_PROOF`` there.
    """

    lease: float
    data_dir: FilePath
    proof: Word = ""
    shared: bool = False


class Beat(msgspec.Struct, frozen=True):
    """PING and its PONG. ``proof``: of a node's first ping, see ``Welcome``."""

    seq: Count
    proof: Word = ""


class Start(msgspec.Struct, frozen=True):
    """Start a worker on a channel that was never used before.

    ``passthrough``: names of the node's environment variables that it inherits. The graces: seconds, as in ``[rpc]``.
    """

    plan: WorkerPlan
    passthrough: tuple[str, ...]
    eof_grace: float
    term_grace: float

    @classmethod
    def of(cls, plan: WorkerPlan, settings: RpcSettings) -> "Start":
        """What a node has to know of the settings."""
        return cls(plan, tuple(settings.env_passthrough), float(settings.eof_grace), float(settings.term_grace))

    def settings(self) -> RpcSettings:
        """Those settings, as the node's process code takes them."""
        return RpcSettings(
            env_passthrough=list(self.passthrough),
            eof_grace=Seconds(self.eof_grace),
            term_grace=Seconds(self.term_grace),
        )


class Started(msgspec.Struct, frozen=True):
    """The worker runs as this process."""

    pid: Count


class Failed(msgspec.Struct, frozen=True):
    """The worker could not be started; the channel is free of it."""

    message: Annotated[str, msgspec.Meta(max_length=32 * 1024)]
    is_refused: bool = False


class Credit(msgspec.Struct, frozen=True):
    """Bytes of the channel that were consumed: of its stream, its transcript (LOG, PUT), its stderr and its files."""

    stream: Count = 0
    log: Count = 0
    stderr: Count = 0
    files: Count = 0


class EndWorker(msgspec.Struct, frozen=True):
    """Climb the kill ladder; ``force``: kill at once."""

    force: bool = False


class Exit(msgspec.Struct, frozen=True):
    """The worker's process has ended; all its output was sent before.

    It is sent again with ``is_gone`` when nothing of the worker can run any more. ``in_order``: see ``NodeProcess``.
    """

    code: int | None = None
    signal: int | None = None
    in_order: bool = False
    is_gone: bool = False


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """What one worker uses: bytes, seconds of CPU."""

    channel: Count
    rss: int | None
    cpu: float | None
    suspended: bool


class Facts(msgspec.Struct, frozen=True):
    """What some of the node's workers use, and the machine: its load, free memory in bytes, and the link's round trip.

    What is None is not known, or was said in an earlier frame.
    """

    workers: Annotated[tuple[Usage, ...], msgspec.Meta(max_length=2000)] = ()
    load: float | None = None
    memory_free: Count | None = None
    rtt: float | None = None


class Follow(msgspec.Struct, frozen=True):
    """The worker's transcript from now on, of which ``size`` bytes are at home and equal; "" = it keeps none.

    ``number``: what its pieces will be known by.
    """

    path: FilePath
    size: Count = 0
    number: Count = 0


class Piece(msgspec.Struct, frozen=True):
    """A part of the transcript, for LOG and PUT.

    ``is_whole``: the file begins again, and takes the place of the old one with the piece that ``is_last``.
    ``number``: that of the FOLLOW that it belongs to; those of one PUT have one number, too.
    """

    offset: Count
    data: bytes
    is_whole: bool = False
    is_last: bool = True
    number: Count = 0


class Have(msgspec.Struct, frozen=True):
    """What is there of the transcript that the worker is to resume? ``limit``: the size of it at home."""

    path: FilePath
    limit: Count
    number: Count = 0


class Has(msgspec.Struct, frozen=True):
    """The size of the node's file, None where there is none, and the SHA-256 of its first ``limit`` bytes.

    ``problem``: why it cannot be used. ``number``: that of the FOLLOW, HAVE or PUT that it answers.
    """

    size: Count | None = None
    sha256: Annotated[bytes, msgspec.Meta(max_length=32)] = b""
    problem: Reason = ""
    number: Count = 0


class Fetch(msgspec.Struct, frozen=True):
    """Send a file of the worker's working directory, at most its first ``limit`` bytes.

    It takes the place of the FETCH before, of which nothing more is sent. ``number``: what the answer is known by.
    """

    path: FilePath
    limit: Count
    number: Count


class FilePart(msgspec.Struct, frozen=True):
    """The next part of a file that was asked for.

    ``problem``: why there is none, with its ``errno`` where it has one.
    """

    number: Count
    data: bytes = b""
    is_last: bool = True
    problem: Reason = ""
    errno: Count = 0


class Bye(msgspec.Struct, frozen=True):
    """The link ends in order. ``retry_after``: seconds after which it may be tried again; None = not at all.

    ``swept``: of a node, that nothing runs any more that was started over the link.
    """

    reason: Reason = ""
    retry_after: float | None = None
    swept: bool = False


_encode = msgspec.msgpack.Encoder().encode


def message_frame(kind: FrameKind, channel: int, message: msgspec.Struct) -> bytes:
    """The bytes of a frame that carries a message. Raises LinkViolation where the other end would not take it."""
    payload = _encode(message)
    if len(payload) > MAX_SENT_BYTES[kind]:
        raise LinkViolation(f"a frame {kind.name} of {len(payload)} bytes would be over its limit")
    return encode_frame(kind, channel, payload)


def sendable_path(path: str) -> str:
    """The path, if a message can carry it. Raises ValueError for one that is too long, or is no text in UTF-8."""
    if len(path.encode()) > _MAX_PATH:
        raise ValueError(f"a path has at most {_MAX_PATH} bytes")
    return path


def decode_message(payload: bytes, kind: type[T]) -> T:
    """The message that a frame carries. Raises LinkViolation."""
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise LinkViolation(f"a message {kind.__name__} cannot be read: {exc}") from exc


def decode_hello(payload: bytes) -> Hello:
    """The HELLO of a node that speaks this protocol. Raises LinkViolation."""
    said = decode_message(payload, dict[str, Any])
    if said.get("protocol") != PROTOCOL:
        raise LinkViolation(
            f"the node speaks version {said.get('protocol')!r:.20} of the protocol, not {PROTOCOL}; "
            "install the same version of pool there"
        )
    hello = decode_message(payload, Hello)
    if not NODE_NAME.fullmatch(hello.name):
        raise LinkViolation("a node's name has 1 to 64 letters, digits, dots, dashes and underscores")
    return hello
