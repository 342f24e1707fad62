"""HTTP to a chat-completions server: one request, the bytes of its response, timeouts, errors translated.

The only module that imports httpx; it is imported with the first request.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx
import trio

from agent.models.base import ModelError
from agent.models.openai_endpoint import Endpoint, Timeouts
from agent.models.openai_errors import tidy

_TRANSIENT_SSL_ERRORS = (ssl.SSLEOFError, ssl.SSLSyscallError, ssl.SSLZeroReturnError)
"""How an encrypted connection breaks. The other errors are about certificates and protocols, and stay."""


class ResponseStream:
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
        with _translate_errors(self._origin), _silence_deadline(self._origin, until):
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

    async def drain(self, seconds: float) -> None:
        """Read up to the end of the body, if it comes in that time: then the connection can be used again."""
        until = trio.current_time() + seconds
        try:
            while await self.read(until) is not None:
                pass
        except ModelError:
            return  # the answer is complete; all that is lost is a connection

    async def aclose(self) -> None:
        """Release the response; one not read to its end closes the connection."""
        await self._response.aclose()
        try:
            # httpx nests generators that must not be left hanging: without a connection they end by themselves.
            while await anext(self._chunks, None) is not None:
                pass
        except (httpx.HTTPError, httpx.StreamError):
            return


class OpenAIConnection:
    """A server; requests share its open connections until ``aclose``.

    Making one reads certificates and blocks for some 50 ms where the endpoint is encrypted.
    """

    def __init__(self, endpoint: Endpoint, timeouts: Timeouts) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key.value()}"
        timeout = httpx.Timeout(
            None, connect=timeouts.connect, write=timeouts.between_bytes
        )  # reads: _silence_deadline
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, verify=endpoint.encrypted)

    @asynccontextmanager
    async def post(self, body: bytes) -> AsyncIterator[ResponseStream]:
        """Send a request and wait for the head of its reply. Raises ModelError."""
        origin, until = self._endpoint.origin, trio.current_time() + self._timeouts.first_byte
        with _translate_errors(origin), _silence_deadline(origin, until):
            request = self._client.build_request("POST", self._endpoint.url, content=body)
            reply = ResponseStream(await self._client.send(request, stream=True), origin)
        try:
            yield reply
        finally:
            with trio.move_on_after(self._timeouts.close, shield=True):
                await reply.aclose()

    async def aclose(self) -> None:
        """Close what is kept open."""
        await self._client.aclose()


@contextmanager
def _silence_deadline(origin: str, until: float) -> Iterator[None]:
    with trio.move_on_at(until) as scope:
        yield
    if scope.cancelled_caught:
        raise ModelError(f"{origin} has said nothing for too long", transient=True)


@contextmanager
def _translate_errors(origin: str) -> Iterator[None]:
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
        transient = not any(
            isinstance(cause, ssl.SSLError) and not isinstance(cause, _TRANSIENT_SSL_ERRORS) for cause in causes
        )
        raise ModelError(f"{origin} {doing}: {said}", transient=transient) from exc


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """It and what it came from: httpx and trio often leave the words to the cause."""
    cause: BaseException | None = exc
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
