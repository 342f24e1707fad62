"""HTTP requests to addresses that were checked before. The only module of the package that imports httpx.

It connects to the address and verifies the host's certificate. httpx's transport without its client follows no
redirect, keeps no cookie, uses no proxy from the environment (which would resolve the name again), and logs no URL.
Connections are not kept: one made for a host could serve another host at the same address.
"""

import ssl
from collections.abc import Iterator

import httpx

from heartbeat.delivery.channel import DeliveryFailed, WebhookRequest, WebhookResponse

_LONGEST_REASON = 200


class HttpSender:
    """Sends webhook requests. Making one reads the certificates that are trusted and blocks for some 20 ms."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = httpx.create_ssl_context(trust_env=False) if tls is None else tls

    async def send(self, request: WebhookRequest) -> WebhookResponse:
        """Send it to the first of its addresses that can be reached; of the reply only the head is read.

        The caller bounds the time. Raises DeliveryFailed.
        """
        errors: list[httpx.HTTPError] = []
        for address in request.addresses:
            try:
                return await self._send_to(address, request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
                errors.append(exc)  # nothing was sent: another address may do
            except httpx.HTTPError as exc:
                raise DeliveryFailed(f"{request.origin} broke off: {_reason(exc)}") from exc
        raise DeliveryFailed(f"{request.origin} cannot be reached: {_reason(errors[-1])}") from errors[-1]

    async def _send_to(self, address: str, request: WebhookRequest) -> WebhookResponse:
        url = httpx.URL(scheme=request.scheme, host=address, port=request.port, raw_path=request.path.encode())
        sent = httpx.Request(
            "POST",
            url,
            headers={"host": request.authority, **request.headers},
            content=request.body,
            extensions={"sni_hostname": request.host, "timeout": {"connect": request.connect_timeout}},
        )
        async with httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False) as transport:
            response = await transport.handle_async_request(sent)
            await response.aclose()
            return WebhookResponse(response.status_code, response.headers.get("retry-after", ""))


def _reason(error: BaseException) -> str:
    """The first words in it and what it came from: httpx and trio often leave them to the cause."""
    said = next((said for cause in _causes(error) if (said := str(cause).strip())), type(error).__name__)
    return said[:_LONGEST_REASON]


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
