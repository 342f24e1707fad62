"""Where nodes dial: a TCP port with TLS, its certificate made for one life of the supervisor."""

import hashlib
import os
import ssl
import subprocess
import tempfile
from pathlib import Path

import trio

from cluster.home import NodeDesk
from cluster.wire import LinkWire
from errors import SettingsRefused

_DAYS = "3650"
_MAX_SAID = 1000  # bytes of what openssl says


class LifeCertificate:
    """A certificate for one life; nodes know it by ``fingerprint`` (SHA-256, hex).

    Its key is in a temporary directory of this user while it is made, and in this process alone from then on.
    """

    def __init__(self, context: ssl.SSLContext, fingerprint: str) -> None:
        self.context = context
        self.fingerprint = fingerprint

    @classmethod
    def make(cls) -> "LifeCertificate":
        """Make one by ``openssl``; blocks. Raises SettingsRefused where there is no such program."""
        with tempfile.TemporaryDirectory(prefix="pool-tls-") as directory:
            key, certificate = Path(directory, "key.pem"), Path(directory, "certificate.pem")
            command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
            command += ["-subj", "/CN=pool", "-days", _DAYS, "-keyout", str(key), "-out", str(certificate)]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=30, env={"PATH": os.environ["PATH"]})
            except (OSError, subprocess.SubprocessError) as exc:
                said = getattr(exc, "stderr", None) or b""
                words = f"{exc} {said[-_MAX_SAID:].decode('utf-8', 'replace')}".strip()
                raise SettingsRefused(f"no certificate for nodes can be made: {words}") from exc
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
        return cls(context, hashlib.sha256(der).hexdigest())


async def serve_nodes(
    desk: NodeDesk,
    certificate: LifeCertificate,
    host: str,
    port: int,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Let nodes in until cancelled; reports the port. Raises OSError."""

    async def serve(stream: trio.SocketStream) -> None:
        await desk.serve_dialled(LinkWire.accepted(stream.socket, certificate.context))

    listeners = await trio.open_tcp_listeners(port, host=host)
    task_status.started(int(listeners[0].socket.getsockname()[1]))
    await trio.serve_listeners(serve, listeners)
