"""Chat-completions client and endpoint.

Where a chat-completions server is, how it wants to be spoken to, read from a flag and the environment; patience.

Any server that speaks OpenAI's chat completions: one streamed request a call.

Here is the order of things; the parts lie beside this file: ``openai_endpoint`` (where the server is),
``openai_messages`` (what it is asked), ``openai_connection`` (the way there), ``openai_answer`` (what comes back) and
``openai_errors`` (what went wrong). A call that is cancelled or abandoned closes its connection at once.

The way to a chat-completions server: one request, its reply's bytes, patience, and errors in our own words.

The only place that knows httpx; it is imported when the first request is made, and not before.
"""

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import NoReturn, TypeAlias
from urllib.parse import SplitResult, urlsplit

import httpx
import msgspec
import trio

from agent.models.base import CallPiece, ModelError, ModelRequest, Piece
from agent.models.openai_errors import error_of_status, tidy
from agent.models.openai_messages import Dialect, Names, request_body
from agent.models.openai_stream import AnswerLimits, StreamedAnswer, WholeAnswer

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_COMPAT = {
    "no-images": {"images": False},
    "strict-roles": {"strict_roles": True},
    "no-reasoning-effort": {"reasoning_effort": False},
    "no-stream-options": {"stream_options": False},
    "no-answer-options": {"answer_options": False},
}


class BadEndpoint(ValueError):
    """The base URL, the key or OPENAI_COMPAT cannot be used; the message is for the user and holds no secret."""


class Secret:
    """A text that shows itself only when asked: not in a repr, a log or a traceback."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Secret(***)" if self._text else "Secret()"

    def __bool__(self) -> bool:
        return bool(self._text)

    def reveal(self) -> str:
        """The text."""
        return self._text

    def hidden_in(self, text: str) -> str:
        """A text without this one in it."""
        return text.replace(self._text, "***") if self._text else text


class Endpoint(msgspec.Struct, frozen=True):
    """A server. ``url`` is where chat completions are asked for, ``origin`` what errors call it.

    ``key_hint``: advice for the case that it refuses the request for its key.
    """

    url: str
    origin: str
    key: Secret
    dialect: Dialect = Dialect()
    key_hint: str = ""

    @property
    def encrypted(self) -> bool:
        """Whether it is spoken to over TLS."""
        return self.url.startswith("https:")


class Patience(msgspec.Struct, frozen=True):
    """Seconds that a server may take.

    ``connect``: to be reached. ``first_byte``: to begin its answer; wide, since a model may think in silence.
    ``between_bytes``: between two signs of life. ``count``: to count the tokens of a complete answer.
    ``error``: to say what is wrong, once it has said that something is.
    ``end``: to end a body after its last word, so that the connection can be used again. ``close``: to be left.
    """

    connect: float = 15.0
    first_byte: float = 300.0
    between_bytes: float = 120.0
    count: float = 2.0
    error: float = 5.0
    end: float = 0.1
    close: float = 2.0


def read_endpoint(base_url: str | None, environment: Mapping[str, str]) -> Endpoint:
    """The flag's URL before OPENAI_BASE_URL before the default; OPENAI_API_KEY; OPENAI_COMPAT, a comma list of quirks.

    Raises BadEndpoint.
    """
    base = (base_url or environment.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL).strip().rstrip("/")
    parts = _split(base)
    key = environment.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise BadEndpoint("OPENAI_API_KEY holds characters that no key can have")
    return Endpoint(
        url=f"{base}/chat/completions",
        origin=parts.netloc.rpartition("@")[2],
        key=Secret(key),
        dialect=_dialect(environment.get("OPENAI_COMPAT", "")),
        key_hint=_key_hint(environment, has_key=bool(key)),
    )


def _key_hint(environment: Mapping[str, str], *, has_key: bool) -> str:
    """Workers of a pool do not inherit the terminal's variables: their key is in the settings."""
    in_a_pool = "POOL_WORKER_ID" in environment
    place = "OPENAI_API_KEY in [agents.NAME.env] of the pool's settings" if in_a_pool else "OPENAI_API_KEY"
    return f"check the key in {place}" if has_key else f"no key was sent: set {place}"


def _split(base: str) -> SplitResult:
    try:
        parts = urlsplit(base)
        _ = parts.port  # raises for one that is no number
    except ValueError:
        _refuse("it cannot be read")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        _refuse("it must begin with http://HOST or https://HOST")
    if parts.query or parts.fragment or not (base.isascii() and base.isprintable()):
        _refuse("it may hold neither a query, nor a fragment, nor characters beyond ASCII")
    if parts.username or parts.password:
        _refuse("a secret belongs into OPENAI_API_KEY")
    return parts


def _refuse(why: str) -> NoReturn:
    raise BadEndpoint(f"the base URL of the model server cannot be used: {why}")


def _dialect(words: str) -> Dialect:
    chosen: dict[str, bool] = {}
    for word in filter(None, map(str.strip, words.split(","))):
        if word not in _COMPAT:
            raise BadEndpoint(f"OPENAI_COMPAT does not know {word[:50]!r}; it knows: {', '.join(_COMPAT)}")
        chosen |= _COMPAT[word]
    return Dialect(**chosen)


_ERROR_BODY_BYTES = 64 * 1024

_Answer: TypeAlias = StreamedAnswer | WholeAnswer


class OpenAIModel:
    """One model of one server."""

    provider = "openai"
    keeps_cache = True

    def __init__(
        self, name: str, endpoint: Endpoint, patience: Patience | None = None, limits: AnswerLimits | None = None
    ) -> None:
        self.name = name
        self._endpoint = endpoint
        self._patience = patience or Patience()
        self._limits = limits or AnswerLimits()
        self._connection: Connection | None = None

    @property
    def needs_alternation(self) -> bool:
        """See ``agent.models.base.Model``."""
        return self._endpoint.dialect.strict_roles

    @property
    def takes_answer_options(self) -> bool:
        """See ``agent.models.base.Model``."""
        return self._endpoint.dialect.answer_options

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """See ``agent.models.base.Model``."""
        names = Names(tool.name for tool in request.tools)
        try:
            async with aclosing(self._answer(request, names)) as pieces:
                async for piece in pieces:
                    yield _with_our_name(piece, names)
        except ModelError as exc:
            raise self._without_key(exc) from exc.__cause__

    async def aclose(self) -> None:
        """See ``agent.models.base.Model``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _answer(self, request: ModelRequest, names: Names) -> AsyncGenerator[Piece, None]:
        body = msgspec.json.encode(request_body(self.name, request, names, self._endpoint.dialect))
        if self._connection is None:  # made in a thread: it takes a tenth of a second, and pings do not wait
            self._connection = await trio.to_thread.run_sync(_connect, self._endpoint, self._patience)
        async with self._connection.post(body) as reply:
            answer = await self._begin(reply)
            async with aclosing(self._read(reply, answer)) as batches:
                async for pieces in batches:
                    for piece in pieces:
                        yield piece
            for piece in answer.close():
                yield piece
            await reply.finish(self._patience.end)

    async def _begin(self, reply: "Reply") -> _Answer:
        if reply.status != 200:
            body = await reply.read_start(_ERROR_BODY_BYTES, self._patience.error)
            hint = self._endpoint.key_hint
            raise error_of_status(reply.status, reply.headers, body, time.time(), key_hint=hint)
        kind = reply.content_type
        if kind in {"text/html", "application/xhtml+xml"}:
            raise ModelError(f"{self._endpoint.origin} answered with a web page: is the base URL right?")
        form = WholeAnswer if kind == "application/json" or kind.endswith("+json") else StreamedAnswer
        return form(self._limits)

    async def _read(self, reply: "Reply", answer: _Answer) -> AsyncGenerator[list[Piece], None]:
        """Pieces as they come, until the answer is complete and counted, or the body has ended."""
        seconds = self._patience.first_byte
        until = trio.current_time() + seconds
        while not answer.done and (data := await _read_on(reply, answer, until)) is not None:
            was_complete = answer.complete
            pieces = answer.feed(data)
            yield pieces
            if answer.complete:
                seconds = self._patience.count
            elif pieces:
                seconds = self._patience.between_bytes
            if not was_complete:
                until = trio.current_time() + seconds

    def _without_key(self, error: ModelError) -> ModelError:
        """The same error; some servers repeat the key in theirs."""
        return ModelError(
            self._endpoint.key.hidden_in(str(error)),
            transient=error.transient,
            retry_after=error.retry_after,
            overflow=error.overflow,
        )


def _connect(endpoint: Endpoint, patience: Patience) -> "Connection":

    return Connection(endpoint, patience)


async def _read_on(reply: "Reply", answer: _Answer, until: float) -> bytes | None:
    try:
        return await reply.read(until)
    except ModelError:
        if answer.complete:
            return None  # only the count of its tokens is missing
        raise


def _with_our_name(piece: Piece, names: Names) -> Piece:
    return CallPiece(names.ours(piece.name), piece.input) if isinstance(piece, CallPiece) else piece


_PASSING = (ssl.SSLEOFError, ssl.SSLSyscallError, ssl.SSLZeroReturnError)
"""How an encrypted connection breaks. The other errors are about certificates and protocols, and stay."""


class Reply:
    """A response whose body has not been read yet. ``headers`` with lower-case names."""

    def __init__(self, response: httpx.Response, origin: str) -> None:
        self.status = response.status_code
        self.headers = dict(response.headers.items())
        self._response = response
        self._chunks: AsyncGenerator[bytes, None] = response.aiter_bytes()  # type: ignore[assignment]  # it is one
        self._origin = origin

    @property
    def content_type(self) -> str:
        """Without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def read(self, until: float) -> bytes | None:
        """The next bytes of the body, at the latest at this time of trio's clock; None: it has ended.

        Raises ModelError.
        """
        with _translated(self._origin), _patient(self._origin, until):
            return await anext(self._chunks, None)

    async def read_start(self, limit: int, seconds: float) -> bytes:
        """The first bytes of the body, as many as there are in that time, and not many more than ``limit``."""
        start = b""
        until = trio.current_time() + seconds
        try:
            while len(start) < limit and (data := await self.read(until)) is not None:
                start += data
        except ModelError:
            return start  # part of an error's text is better than an error about that text
        return start

    async def finish(self, seconds: float) -> None:
        """Read up to the end of the body, if it comes in that time: then the connection can be used again."""
        until = trio.current_time() + seconds
        try:
            while await self.read(until) is not None:
                pass
        except ModelError:
            return  # the answer is complete; all that is lost is a connection

    async def aclose(self) -> None:
        """Leave; a body that was not read to its end closes the connection."""
        await self._response.aclose()
        try:
            # httpx nests generators that must not be left hanging: without a connection they end by themselves.
            while await anext(self._chunks, None) is not None:
                pass
        except (httpx.HTTPError, httpx.StreamError):
            return


class Connection:
    """A server, reached when it is needed. Requests share what is kept open until ``aclose``.

    Making one reads certificates and blocks for some 50 ms where the endpoint is encrypted.
    """

    def __init__(self, endpoint: Endpoint, patience: Patience) -> None:
        self._endpoint = endpoint
        self._patience = patience
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key.reveal()}"
        timeout = httpx.Timeout(None, connect=patience.connect, write=patience.between_bytes)  # reading: see _patient
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, verify=endpoint.encrypted)

    @asynccontextmanager
    async def post(self, body: bytes) -> AsyncIterator[Reply]:
        """Send a request and wait for the head of its reply. Raises ModelError."""
        origin, until = self._endpoint.origin, trio.current_time() + self._patience.first_byte
        with _translated(origin), _patient(origin, until):
            request = self._client.build_request("POST", self._endpoint.url, content=body)
            reply = Reply(await self._client.send(request, stream=True), origin)
        try:
            yield reply
        finally:
            with trio.move_on_after(self._patience.close, shield=True):
                await reply.aclose()

    async def aclose(self) -> None:
        """Close what is kept open."""
        await self._client.aclose()


@contextmanager
def _patient(origin: str, until: float) -> Iterator[None]:
    with trio.move_on_at(until) as scope:
        yield
    if scope.cancelled_caught:
        raise ModelError(f"{origin} has said nothing for too long", transient=True)


@contextmanager
def _translated(origin: str) -> Iterator[None]:
    try:
        yield
    except (httpx.LocalProtocolError, httpx.InvalidURL, httpx.UnsupportedProtocol) as exc:
        # Without its words and its chain, which may quote a header.
        raise ModelError(f"the request to {origin} is invalid: {type(exc).__name__}") from None
    except httpx.TimeoutException as exc:
        raise ModelError(f"{origin} cannot be reached: it takes too long", transient=True) from exc
    except httpx.HTTPError as exc:
        causes = list(_causes(exc))
        said = next((said for cause in causes if (said := tidy(str(cause)))), type(exc).__name__)
        doing = "cannot be reached" if isinstance(exc, httpx.ConnectError | httpx.ProxyError) else "broke off"
        transient = not any(isinstance(cause, ssl.SSLError) and not isinstance(cause, _PASSING) for cause in causes)
        raise ModelError(f"{origin} {doing}: {said}", transient=transient) from exc


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """It and what it came from: httpx and trio often leave the words to the cause."""
    cause: BaseException | None = exc
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
