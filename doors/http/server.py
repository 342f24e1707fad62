"""The HTTP server: binds before anything is said about it, serves until cancelled, lets peers hear last words."""

import os
import socket
from pathlib import Path
from typing import NamedTuple

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from doors.http.access import Access
from doors.http.app import build_app
from doors.http.routes import openings
from doors.http.services import MethodsPort, Services
from doors.http.settings import HttpSettings
from doors.http.tokens import load_grants
from errors import UsageError

__all__ = ["HttpServer", "Listening"]

_BACKLOG = 128


class Listening(NamedTuple):
    """Where the server can be reached."""

    url: str


class HttpServer:
    """Serves ``methods`` where ``settings.bind`` says."""

    def __init__(self, methods: MethodsPort, settings: HttpSettings, data_dir: Path) -> None:
        """Raises UsageError for tokens that cannot be used."""
        self._settings = settings
        self._data_dir = data_dir
        self.services = Services(methods, settings, Access(load_grants(settings, os.environ, data_dir)))

    async def serve(self, *, task_status: trio.TaskStatus[Listening] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; has started when clients can connect. Raises UsageError where it cannot bind."""
        app = build_app(self.services, openings(self.services))
        config = Config()
        config.accesslog = config.errorlog = None
        bound = bind(self._settings.bind)
        host, port = bound.getsockname()[:2]
        bound.listen(_BACKLOG)
        config.bind = [f"fd://{bound.detach()}"]
        task_status.started(Listening(f"http://{f'[{host}]' if ':' in host else host}:{port}"))
        await serve(app, config, mode="asgi")  # type: ignore[arg-type]  # the two describe ASGI's messages differently


def parse_bind(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``[IPV6]:PORT``. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    inner = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or not inner:
        raise UsageError(f'http.bind must be an address and a port such as "127.0.0.1:8765", not {text!r}')
    return inner, int(port)


def bind(text: str) -> socket.socket:
    """A socket bound there. Raises UsageError."""
    host, port = parse_bind(text)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as exc:
        bound.close()
        raise UsageError(f"cannot listen on {text}: {exc.strerror}") from exc
    return bound
